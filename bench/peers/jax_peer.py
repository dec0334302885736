"""mamba2-jax on a shape of Mamba-2, float32: prompt and greedy decode. Run by run.py.

Its weights are its own random ones: it reads no GGUF. The first call of each kind compiles and does not
count. For decode its chunk length is set to --decode-chunk: 1 makes it as fast as it can be, 256 is how it comes, when it
pads every token to a chunk.
Prints one JSON object.
"""
import argparse
import functools
import json
import resource
import time

import jax
import jax.numpy as jnp
from flax import nnx
from mamba2_jax import Mamba2Config, Mamba2ForCausalLM, create_empty_cache

SHAPES = {"mamba2-130m": (24, 768), "mamba2-370m": (48, 1024)}


@functools.partial(jax.jit, static_argnums=0)
def forward(graph, state, ids, cache):
    """nnx.jit of the model does the same but walks through it in Python at each call."""
    model = nnx.merge(graph, state)
    out = model(ids, None, cache)
    return jnp.argmax(out["logits"][:, -1:], axis=-1), out["cache"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", choices=sorted(SHAPES))
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--gen", type=int, default=64)
    parser.add_argument("--decode-chunk", type=int, default=1)
    args = parser.parse_args()
    layers, width = SHAPES[args.model]
    config = Mamba2Config(vocab_size=50288, hidden_size=width, num_hidden_layers=layers)
    begin = time.perf_counter()
    model = Mamba2ForCausalLM(config, rngs=nnx.Rngs(0))
    jax.block_until_ready(nnx.state(model))
    ids = jax.random.randint(jax.random.key(0), (1, args.prompt), 0, config.vocab_size)
    result = {"load_s": time.perf_counter() - begin}
    parts = nnx.split(model)
    empty = create_empty_cache(config, 1)
    for _ in range(2):  # the first compiles
        begin = time.perf_counter()
        token, cache = jax.block_until_ready(forward(*parts, ids, empty))
        result["prefill_s"] = time.perf_counter() - begin
    for layer in model.backbone.layers:
        layer.mixer.chunk_size = args.decode_chunk
    parts = nnx.split(model)
    jax.block_until_ready(forward(*parts, token, cache))
    begin = time.perf_counter()
    for _ in range(args.gen):
        token, cache = forward(*parts, token, cache)
    jax.block_until_ready(token)
    result["decode_s"] = time.perf_counter() - begin
    result["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(result))


if __name__ == "__main__":
    main()
