"""Seeded random weights with realistic A_log, D and dt_bias.

numpy's legacy RandomState is used because its stream is frozen: the same seed gives the same weights with
every numpy version. Gains are larger than in a freshly initialised model, so that the layers (and not the
tied embedding) decide the next token and greedy text does not repeat one token.
"""

import numpy as np


def _inverse_softplus(v):
    return v + np.log(-np.expm1(-v))


def make(shape, seed, *, real_vocab, tied, biases=False, x_proj_gain=1.0, out_gain=8.0,
         embed_std=0.6, dt_range=(1e-3, 1e-1)):
    """Canonical names -> float32 arrays. Rows >= real_vocab are padding: small, never the winner."""
    rng = np.random.RandomState(seed)
    s = shape
    w = {}

    def normal(name, dims, std, mean=0.0):
        w[name] = (mean + std * rng.standard_normal(dims)).astype(np.float32)

    def dt_bias(name, n):
        lo, hi = np.log(dt_range[0]), np.log(dt_range[1])
        w[name] = _inverse_softplus(np.exp(rng.uniform(lo, hi, n))).astype(np.float32)

    normal("embedding.weight", (s.vocab, s.d_model), embed_std)
    w["embedding.weight"][real_vocab:] *= np.float32(0.25)
    for i in range(s.n_layer):
        normal(f"layers.{i}.norm.weight", (s.d_model,), 0.2, 1.0)
        p = f"layers.{i}.mixer."
        if s.family == 1:
            a = np.log(np.arange(1, s.d_state + 1))[None, :]
            w[p + "A_log"] = (a + 0.2 * rng.standard_normal((s.d_inner, s.d_state))).astype(np.float32)
            normal(p + "D", (s.d_inner,), 0.3, 1.0)
        else:
            dt_bias(p + "dt_bias", s.n_heads)
            w[p + "A_log"] = np.log(rng.uniform(1.0, 16.0, s.n_heads)).astype(np.float32)
            normal(p + "D", (s.d_inner if s.d_has_hdim else s.n_heads,), 0.3, 1.0)
        normal(p + "in_proj.weight", (s.in_proj_rows, s.d_model), 1.2 / np.sqrt(s.d_model))
        normal(p + "conv1d.weight", (s.conv_channels, 1, s.d_conv), 1.2 / np.sqrt(s.d_conv))
        normal(p + "conv1d.bias", (s.conv_channels,), 0.2)
        if s.family == 1:
            rows = s.dt_rank + 2 * s.d_state
            normal(p + "x_proj.weight", (rows, s.d_inner), x_proj_gain / np.sqrt(s.d_inner))
            normal(p + "dt_proj.weight", (s.d_inner, s.dt_rank), 1.0 / np.sqrt(s.dt_rank))
            dt_bias(p + "dt_proj.bias", s.d_inner)
        elif s.gated_norm:
            normal(p + "norm.weight", (s.d_inner,), 0.2, 1.0)
        # The gated norm brings y to unit size; without it y is smaller and needs more gain.
        gain = out_gain if not (s.family == 2 and s.gated_norm) else 0.5 * out_gain
        normal(p + "out_proj.weight", (s.d_model, s.d_inner), gain / np.sqrt(s.d_inner))
        if biases:
            normal(p + "in_proj.bias", (s.in_proj_rows,), 0.2)
            normal(p + "out_proj.bias", (s.d_model,), 0.3)
    normal("norm_f.weight", (s.d_model,), 0.2, 1.0)
    if not tied:
        normal("lm_head.weight", (s.vocab, s.d_model), 0.6)
        w["lm_head.weight"][real_vocab:] *= np.float32(0.25)
    return w


def prompt(seed, real_vocab, length=29):
    """Ids in 1..real_vocab-1: id 0 is the end-of-text token of most configs."""
    return [int(t) for t in np.random.RandomState(seed).randint(1, real_vocab, length)]
