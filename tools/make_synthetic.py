#!/usr/bin/env python3
"""Writes a checkpoint with the shape of a published model and random weights.

For measuring speed and memory without downloading anything: the arithmetic does not depend on the
values. Initial values follow mamba_ssm's (A_log = log(1..N), dt_bias = softplus^-1 of 0.001..0.1),
so that the activations stay in a realistic range. Needs NumPy.

    tools/make_synthetic.py mamba-130m /tmp/mamba-130m --dtype bf16
"""
import argparse
import json
import pathlib
import struct

import numpy as np

# name: (family, layers, d_model); the rest are the families' defaults
SHAPES = {
    "mamba-130m": (1, 24, 768), "mamba-370m": (1, 48, 1024), "mamba-790m": (1, 48, 1536),
    "mamba-1.4b": (1, 48, 2048), "mamba-2.8b": (1, 64, 2560),
    "mamba2-130m": (2, 24, 768), "mamba2-370m": (2, 48, 1024), "mamba2-780m": (2, 48, 1536),
    "mamba2-1.3b": (2, 48, 2048), "mamba2-2.7b": (2, 64, 2560),
}
TILE = 1 << 22  # random values are drawn once and repeated


def to_dtype(values, dtype):
    values = values.astype(np.float32)
    if dtype == "F32":
        return values.tobytes()
    if dtype == "F16":
        return values.astype(np.float16).tobytes()
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).tobytes()


def tensors(family, layers, d, vocab):
    """(name, shape, how to fill it, dtype or None for the model's)"""
    e, k = 2 * d, 4
    yield "backbone.embeddings.weight", (vocab, d), 0.02, None
    for i in range(layers):
        p = f"backbone.layers.{i}."
        yield p + "norm.weight", (d,), "one", "F32"
        if family == 1:
            n, r = 16, -(-d // 16)
            yield p + "mixer.in_proj.weight", (2 * e, d), d ** -0.5, None
            yield p + "mixer.conv1d.weight", (e, 1, k), 0.3, "F32"
            yield p + "mixer.conv1d.bias", (e,), 0.1, "F32"
            yield p + "mixer.x_proj.weight", (r + 2 * n, e), e ** -0.5, None
            yield p + "mixer.dt_proj.weight", (e, r), r ** -0.5, None
            yield p + "mixer.dt_proj.bias", (e,), "dt", "F32"
            yield p + "mixer.A_log", (e, n), "A", "F32"
            yield p + "mixer.D", (e,), "one", "F32"
        else:
            n, h = 128, e // 64
            yield p + "mixer.in_proj.weight", (2 * e + 2 * n + h, d), d ** -0.5, None
            yield p + "mixer.conv1d.weight", (e + 2 * n, 1, k), 0.3, "F32"
            yield p + "mixer.conv1d.bias", (e + 2 * n,), 0.1, "F32"
            yield p + "mixer.dt_bias", (h,), "dt", "F32"
            yield p + "mixer.A_log", (h,), "A", "F32"
            yield p + "mixer.D", (h,), "one", "F32"
            yield p + "mixer.norm.weight", (e,), "one", "F32"
        yield p + "mixer.out_proj.weight", (d, e), e ** -0.5 / layers ** 0.5, None
    yield "backbone.norm_f.weight", (d,), "one", "F32"


def chunks(shape, fill, dtype, tile, rng):
    size = int(np.prod(shape))
    if fill == "one":
        yield to_dtype(np.ones(size), dtype)
    elif fill == "dt":
        dt = np.exp(rng.uniform(np.log(0.001), np.log(0.1), size))
        yield to_dtype(dt + np.log(-np.expm1(-dt)), dtype)
    elif fill == "A":
        a = np.log(np.arange(1, shape[-1] + 1, dtype=np.float64)) if len(shape) == 2 else np.log(
            rng.uniform(1, 16, size))
        yield to_dtype(np.broadcast_to(a, shape).reshape(-1), dtype)
    else:
        scaled = to_dtype(tile * fill, dtype)
        width = len(scaled) // TILE
        while size > 0:
            yield scaled[: min(size, TILE) * width]
            size -= TILE


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shape", choices=sorted(SHAPES))
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--dtype", choices=["f32", "f16", "bf16"], default="bf16")
    args = parser.parse_args()
    family, layers, d = SHAPES[args.shape]
    vocab = 50280 if family == 1 else 50288
    dtype = args.dtype.upper()
    rng = np.random.default_rng(0)
    tile = rng.standard_normal(TILE, dtype=np.float32)
    header, offset = {}, 0
    for name, shape, _, own in tensors(family, layers, d, vocab):
        size = int(np.prod(shape)) * (4 if (own or dtype) == "F32" else 2)
        header[name] = {"dtype": own or dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    args.out.mkdir(parents=True, exist_ok=True)
    with open(args.out / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, shape, fill, own in tensors(family, layers, d, vocab):
            for chunk in chunks(shape, fill, own or dtype, tile, rng):
                f.write(chunk)
    config = {"model_type": "mamba" if family == 1 else "mamba2", "hidden_size": d,
              "num_hidden_layers": layers, "vocab_size": vocab, "conv_kernel": 4,
              "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "expand": 2}
    config |= {"state_size": 16} if family == 1 else {
        "state_size": 128, "head_dim": 64, "num_heads": 2 * d // 64, "n_groups": 1}
    (args.out / "config.json").write_text(json.dumps(config, indent=1) + "\n")


if __name__ == "__main__":
    main()
