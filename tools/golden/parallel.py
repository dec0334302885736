"""Second float64 form, used only to check the oracle: whole sequences, no recurrence.

The state is unrolled into the quadratic sum y[t] = sum_{s<=t} C[t].B[s] * exp(l[t]-l[s]) * dt[s] * x[s],
l = cumsum(dt * A), so an error in the recurrence, the order of groups or the conv window shows up.
"""

import numpy as np

from golden.oracle import rms, silu, softplus


def forward(shape, weights, tokens):
    """Logits of every position (len(tokens), vocab)."""
    w = {k: np.asarray(v, dtype=np.float64) for k, v in weights.items()}
    r = w["embedding.weight"][np.asarray(tokens)]
    mixer = _mamba1 if shape.family == 1 else _mamba2
    for i in range(shape.n_layer):
        layer = {
            k[len(f"layers.{i}.mixer."):]: v
            for k, v in w.items()
            if k.startswith(f"layers.{i}.mixer.")
        }
        r = r + mixer(shape, layer, rms(r, shape.eps) * w[f"layers.{i}.norm.weight"])
    head = w.get("lm_head.weight", w["embedding.weight"])
    return (rms(r, shape.eps) * w["norm_f.weight"]) @ head.T


def _conv(layer, x):
    taps = layer["conv1d.weight"][:, 0, :]  # (channels, K), last tap = current token
    L, K = x.shape[0], taps.shape[1]
    y = np.zeros_like(x) + layer.get("conv1d.bias", 0.0)
    for back in range(min(K, L)):
        y[back:] += x[: L - back] * taps[:, K - 1 - back]
    return silu(y)


def _decay(log_decay):
    """exp(l[t] - l[s]) for s <= t, else 0; l = cumsum over axis 0. Result (t, s, ...)."""
    l = np.cumsum(log_decay, axis=0)
    diff = l[:, None] - l[None, :]
    L = l.shape[0]
    keep = (np.arange(L)[:, None] >= np.arange(L)[None, :]).reshape((L, L) + (1,) * (l.ndim - 1))
    return np.exp(np.where(keep, diff, -np.inf))


def _mamba1(shape, layer, h):
    E, R, N = shape.d_inner, shape.dt_rank, shape.d_state
    xz = h @ layer["in_proj.weight"].T + layer.get("in_proj.bias", 0.0)
    u = _conv(layer, xz[:, :E])
    dbc = u @ layer["x_proj.weight"].T
    dt, B, C = dbc[:, :R], dbc[:, R : R + N], dbc[:, R + N :]
    if shape.mixer_rms_eps > 0:
        dt, B, C = (rms(v, shape.mixer_rms_eps) for v in (dt, B, C))
    dt = softplus(dt @ layer["dt_proj.weight"].T + layer["dt_proj.bias"])
    y = layer["D"] * u
    for n in range(N):
        m = _decay(dt * -np.exp(layer["A_log"][:, n]))
        y = y + np.einsum("tse,s,se->te", m, B[:, n], dt * u) * C[:, n : n + 1]
    return (y * silu(xz[:, E:])) @ layer["out_proj.weight"].T + layer.get("out_proj.bias", 0.0)


def _mamba2(shape, layer, h):
    E, N, G, H, P = shape.d_inner, shape.d_state, shape.n_groups, shape.n_heads, shape.headdim
    L = h.shape[0]
    p = h @ layer["in_proj.weight"].T + layer.get("in_proj.bias", 0.0)
    z, dt = p[:, :E], p[:, -H:]
    xbc = _conv(layer, p[:, E:-H])
    x = xbc[:, :E].reshape(L, H, P)
    B = xbc[:, E : E + G * N].reshape(L, G, N)
    C = xbc[:, E + G * N :].reshape(L, G, N)
    dt = np.minimum(np.maximum(softplus(dt + layer["dt_bias"]), shape.dt_limit[0]), shape.dt_limit[1])
    scores = np.einsum("tgn,sgn->tsg", C, B)
    m = _decay(dt * -np.exp(layer["A_log"]))
    y = np.empty((L, H, P))
    for head in range(H):
        mask = scores[:, :, head // (H // G)] * m[:, :, head]
        y[:, head] = mask @ (dt[:, head, None] * x[:, head])
    y = y.reshape(L, E) + np.repeat(layer["D"], E // layer["D"].size) * x.reshape(L, E)
    y = y * silu(z)
    if shape.gated_norm:
        groups = np.split(y, G, axis=1)
        y = np.concatenate([rms(g, shape.eps) for g in groups], axis=1) * layer["norm.weight"]
    return y @ layer["out_proj.weight"].T + layer.get("out_proj.bias", 0.0)
