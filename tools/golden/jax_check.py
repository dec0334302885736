"""Cross-check against mamba2-jax (float32, XLA on the CPU), written by others from the same papers.

It has one group, the gated norm with eps 1e-5, one D for each head, no biases of its projections, and no `dt`
limits but (0, inf): other cases are left out.

It wants numpy 2 and Debian's torch numpy 1, so it may live in another Python than make_golden.py: this file is
run as a program there, with an npz of what it needs, and leaves one of logits.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

# Of its float32 logits from the float64 ones, over 61 rows: sums run in an order of XLA's. Seen: 7.1e-6, as much as
# transformers; the smallest mistake that tests/golden/README.md lists makes 0.03, a wrong eps in mamba2-jax 0.04.
BOUND = 1e-4


def covers(case):
    s = case.shape
    return (s.family == 2 and s.n_groups == 1 and s.gated_norm and not s.d_has_hdim and s.eps == 1e-5
            and s.dt_limit == (0.0, float("inf")) and not case.weights.get("biases"))


def versions(python):
    """What that Python has installed, or nothing."""
    query = "import mamba2_jax, importlib.metadata as m; print(f\"mamba2-jax {m.version('mamba2-jax')}, jax {m.version('jax')}\")"
    found = subprocess.run([python, "-c", query], capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else ""


def compare(python, case, weights, result):
    """weights: canonical names; `result` as in hf_check.compare."""
    s = case.shape
    config = {
        "vocab_size": s.vocab, "hidden_size": s.d_model, "state_size": s.d_state, "head_dim": s.d_inner // s.n_heads,
        "expand": s.d_inner // s.d_model, "conv_kernel": s.d_conv, "num_hidden_layers": s.n_layer, "chunk_size": 16,
        "layer_norm_epsilon": s.eps, "tie_word_embeddings": case.tied,
    }
    with tempfile.TemporaryDirectory() as folder:
        given, got = Path(folder) / "given.npz", Path(folder) / "got.npz"
        np.savez(given, config=json.dumps(config), prompt=result["prompt"], ids=result["ids"],
                 **{"w:" + n: w.astype(np.float32) for n, w in weights.items()})
        subprocess.run([python, __file__, given, got], check=True)
        rows = {n: a.astype(np.float64) for n, a in np.load(got).items()}
    greedy = rows["cached"][len(result["prompt"]) - 1 : -1].argmax(axis=1).tolist()
    return {"greedy_equal": greedy == result["ids"],
            **{n: float(np.abs(a - result["all_rows"]).max()) for n, a in rows.items()}}


def main(given, got):
    import jax.numpy as jnp
    from mamba2_jax import Mamba2Config
    from mamba2_jax.params import create_random_model, load_pytorch_weights

    given = np.load(given)
    named = {n[2:] if n.startswith("w:lm_head") else "backbone." + n[2:]: given[n] for n in given if n.startswith("w:")}
    model, loaded, _ = load_pytorch_weights(
        create_random_model(Mamba2Config(**json.loads(str(given["config"])))), named, strict=True)
    assert len(loaded) == len(named), sorted(named)
    prompt, ids = given["prompt"].tolist(), given["ids"].tolist()
    # The prompt as a whole, then each greedy id from the cache of those before; and all of it as a whole.
    out = model(jnp.asarray([prompt]), None, None)
    rows = [out["logits"][0]]
    for token in ids:
        out = model(jnp.asarray([[token]]), None, out["cache"])
        rows.append(out["logits"][0])
    np.savez(got, cached=np.concatenate(rows), whole=model(jnp.asarray([prompt + ids]), None, None)["logits"][0])


if __name__ == "__main__":
    main(*sys.argv[1:])
