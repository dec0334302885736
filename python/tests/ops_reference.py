"""Float64 oracles of the drop-in operations, as plain loops over time, and how results are compared."""
import numpy as np

# (atol, rtol) by dtype. float32: the bar of the scans (CONFORMANCE.md section 3: sums of products in
# another order than the oracle's). 16 bits: the output has 8 or 11 bits, the inside is float32.
TOLERANCE = {"float32": (2e-5, 2e-4), "float64": (2e-5, 2e-4), "complex64": (2e-5, 2e-4),
             "float16": (2e-2, 2e-2), "bfloat16": (2e-2, 2e-2)}


def close(got, want, dtype=None):
    """Asserts got == want within the dtype's tolerance; NaN and Inf must be at the same places."""
    dtype = dtype or str(got.dtype).replace("torch.", "")
    got, want = to_numpy(got), np.asarray(want)
    assert got.shape == want.shape, (got.shape, want.shape)
    atol, rtol = TOLERANCE[dtype]
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, equal_nan=True)


def to_numpy(x):
    """float64 (or complex128) values of an array or a tensor."""
    if hasattr(x, "detach"):
        x = x.detach()
        x = x.numpy() if x.is_complex() else x.double().numpy()
    if np.iscomplexobj(x):
        return np.asarray(x, np.complex128)
    return np.asarray(x).astype(np.float64)


def softplus(v):
    return np.where(v > 20, v, np.log1p(np.exp(np.minimum(v, 20))))


def silu(v):
    return v / (1 + np.exp(-v))


def expand_groups(x, heads):
    """(groups, ...) -> (heads, ...): head h uses group h // (heads // groups)."""
    return np.repeat(x, heads // x.shape[0], axis=0)


def step(h, x, dt, A, B, C):
    """One step for channels (dim, dstate) with B, C (dim, dstate): the new state and y."""
    h = np.exp(dt[:, None] * A) * h + (dt * x)[:, None] * B
    y = np.sum(C * h, axis=1)
    return h, (2 * y.real if np.iscomplexobj(A) else y)


def selective_scan(u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False,
                   initial_state=None):
    u, delta, A, B, C = map(to_numpy, (u, delta, A, B, C))
    batch, dim, seqlen = u.shape
    dt = delta + (0 if delta_bias is None else to_numpy(delta_bias)[None, :, None])
    dt = softplus(dt) if delta_softplus else dt
    out = np.empty(u.shape)
    last = np.zeros((batch, dim, A.shape[1]), A.dtype)
    for b in range(batch):
        h = last[b] if initial_state is None else to_numpy(initial_state)[b]
        for t in range(seqlen):
            h, y = step(h, u[b, :, t], dt[b, :, t], A, coefficient(B, b, t, dim, A),
                        coefficient(C, b, t, dim, A))
            y = y + (0 if D is None else to_numpy(D) * u[b, :, t])
            out[b, :, t] = y if z is None else y * silu(to_numpy(z)[b, :, t])
        last[b] = h
    return out, last


def coefficient(x, b, t, dim, A):
    """B or C of row b and time t as (dim, dstate)."""
    if x.ndim == 2:
        return x
    x = x[b][None] if x.ndim == 3 else x[b]
    if np.iscomplexobj(A):
        return expand_groups(x[:, :, 2 * t] + 1j * x[:, :, 2 * t + 1], dim)
    return expand_groups(x[:, :, t], dim)


def selective_state_update(state, x, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False,
                           indices=None):
    """The new state and out; with heads or without."""
    state, x, dt, A, B, C = (to_numpy(v).copy() for v in (state, x, dt, A, B, C))
    batch, dstate = x.shape[0], A.shape[-1]
    heads = x.shape[1]
    B, C = (v[:, None] if v.ndim == 2 else v for v in (B, C))
    out = np.zeros(x.shape)
    for b in range(batch):
        slot = b if indices is None else indices[b]
        if slot == -1:
            continue
        d = dt[b] + (0 if dt_bias is None else to_numpy(dt_bias))
        d = softplus(d) if dt_softplus else d
        wide = [expand_groups(v[b], heads) for v in (B, C)]
        if x.ndim == 3:
            wide = [np.repeat(v, x.shape[2], axis=0) for v in wide]
        h, y = step(state[slot].reshape(-1, dstate), x[b].ravel(), d.ravel(),
                    A.reshape(-1, dstate), *wide)
        state[slot] = h.reshape(state[slot].shape)
        y = y.reshape(x[b].shape) + (0 if D is None else to_numpy(D) * x[b])
        out[b] = y if z is None else y * silu(to_numpy(z)[b])
    return state, out


def segments(ids):
    """(begin, end, id) of each run of equal entries."""
    cuts = [0] + [t for t in range(1, len(ids)) if ids[t] != ids[t - 1]] + [len(ids)]
    return [(b, e, ids[b]) for b, e in zip(cuts, cuts[1:]) if e > b]


def causal_conv1d(x, weight, bias=None, seq_idx=None, initial_states=None, activation=None):
    """out and final states."""
    x, weight = to_numpy(x), to_numpy(weight)
    batch, dim, seqlen = x.shape
    width = weight.shape[1]
    out = np.zeros(x.shape)
    final = np.zeros((batch, dim, width - 1))
    for b in range(batch):
        past = np.zeros((dim, width - 1)) if initial_states is None else to_numpy(initial_states)[b]
        first = True
        for begin, end, name in segments(np.zeros(seqlen) if seq_idx is None else seq_idx[b]):
            if name < 0:
                continue
            past = past if first else np.zeros((dim, width - 1))
            first = False
            for t in range(begin, end):
                window = np.concatenate([past, x[b, :, t:t + 1]], axis=1)
                y = np.sum(window * weight, axis=1) + (0 if bias is None else to_numpy(bias))
                out[b, :, t] = y if activation is None else silu(y)
                past = window[:, 1:]
        final[b] = past
    return out, final


def mamba_chunk_scan(x, dt, A, B, C, D=None, z=None, dt_bias=None, initial_states=None, seq_idx=None,
                     dt_softplus=False, dt_limit=(0.0, np.inf)):
    """out and final states, token by token."""
    x, dt, A, B, C = map(to_numpy, (x, dt, A, B, C))
    batch, seqlen, nheads, headdim = x.shape
    dstate = B.shape[-1]
    dt = dt + (0 if dt_bias is None else to_numpy(dt_bias))
    dt = np.clip(softplus(dt) if dt_softplus else dt, *dt_limit)
    D = np.zeros(nheads) if D is None else to_numpy(D)
    D = D[:, None] if D.ndim == 1 else D
    out = np.zeros(x.shape)
    final = np.zeros((batch, nheads, headdim, dstate))
    for b in range(batch):
        S = final[b] if initial_states is None else to_numpy(initial_states)[b]
        first = True
        for begin, end, name in segments(np.zeros(seqlen) if seq_idx is None else seq_idx[b]):
            if name < 0:
                continue
            S = S if first else np.zeros_like(S)
            first = False
            for t in range(begin, end):
                Bt, Ct = expand_groups(B[b, t], nheads), expand_groups(C[b, t], nheads)
                S = (np.exp(dt[b, t] * A)[:, None, None] * S
                     + dt[b, t][:, None, None] * x[b, t][:, :, None] * Bt[:, None, :])
                y = np.einsum("hpn,hn->hp", S, Ct) + D * x[b, t]
                out[b, t] = y if z is None else y * silu(to_numpy(z)[b, t])
        final[b] = S
    return out, final
