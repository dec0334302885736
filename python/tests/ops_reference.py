"""Float64 oracles of the drop-in operations, as plain loops over time, and how results are compared."""
import numpy as np

# (atol, rtol) by dtype. float32: the bar of the scans (CONFORMANCE.md section 3: sums of products in
# another order than the oracle's). 16 bits: the output has 8 or 11 bits, the inside is float32.
TOLERANCE = {"float32": (2e-5, 2e-4), "float64": (2e-5, 2e-4), "complex64": (2e-5, 2e-4),
             "float16": (2e-2, 2e-2), "bfloat16": (2e-2, 2e-2)}


def close(got, want, dtype=None):
    """Asserts got == want, which is finite, within the dtype's tolerance."""
    dtype = dtype or str(got.dtype).replace("torch.", "")
    got, want = to_numpy(got), np.asarray(want)
    assert got.shape == want.shape, (got.shape, want.shape)
    assert np.isfinite(want).all()
    atol, rtol = TOLERANCE[dtype]
    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


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


def norm(x, weight, bias=None, z=None, eps=1e-6, group_size=None, norm_before_gate=True, rms=True):
    x, weight = to_numpy(x), to_numpy(weight)
    gate = 1 if z is None else silu(to_numpy(z))
    v = x if norm_before_gate else x * gate
    group_size = group_size or v.shape[-1]
    groups = v.reshape(*v.shape[:-1], v.shape[-1] // group_size, group_size)
    mean = 0 if rms else groups.mean(axis=-1, keepdims=True)
    var = ((groups - mean) ** 2).mean(axis=-1, keepdims=True)
    out = ((groups - mean) / np.sqrt(var + eps)).reshape(v.shape) * weight
    out = out + (0 if bias is None else to_numpy(bias))
    return out * gate if norm_before_gate else out


def mamba_inner(xz, conv1d_weight, conv1d_bias, x_proj_weight, delta_proj_weight, out_proj_weight,
                out_proj_bias, A, B=None, C=None, D=None, delta_bias=None, B_proj_bias=None,
                C_proj_bias=None, delta_softplus=True, b_rms_weight=None, c_rms_weight=None,
                dt_rms_weight=None, b_c_dt_rms_eps=1e-6):
    dim, is_complex = A.shape[0], np.iscomplexobj(A)
    state, dt_rank = A.shape[1] * (2 if is_complex else 1), delta_proj_weight.shape[1]
    u, _ = causal_conv1d(xz[:, :dim], conv1d_weight[:, 0], conv1d_bias, activation="silu")
    x_dbl = np.einsum("bdl,rd->blr", u, x_proj_weight)
    delta = x_dbl[..., :dt_rank] @ delta_proj_weight.T
    if dt_rms_weight is not None:
        delta = norm(delta, dt_rms_weight, eps=b_c_dt_rms_eps)

    def coefficient(columns, bias, rms_weight):
        columns = columns + (0 if bias is None else bias)
        if rms_weight is not None:
            columns = norm(columns, rms_weight, eps=b_c_dt_rms_eps)
        if not is_complex:
            return columns.transpose(0, 2, 1)
        batch, seqlen, _ = columns.shape
        return columns.reshape(batch, seqlen, -1, 2).transpose(0, 2, 1, 3).reshape(batch, -1, 2 * seqlen)

    if B is None:
        B = coefficient(x_dbl[..., dt_rank:dt_rank + state], B_proj_bias, b_rms_weight)
    if C is None:
        C = coefficient(x_dbl[..., x_dbl.shape[-1] - state:], C_proj_bias, c_rms_weight)
    y, _ = selective_scan(u, delta.transpose(0, 2, 1), A, B, C, D, xz[:, dim:], delta_bias,
                          delta_softplus)
    return y.transpose(0, 2, 1) @ out_proj_weight.T + (0 if out_proj_bias is None else out_proj_bias)


def mamba_split(zxbcdt, conv1d_weight, conv1d_bias, dt_bias, A, D, initial_states=None, seq_idx=None,
                dt_limit=(0.0, np.inf), activation="silu", rmsnorm_weight=None, rmsnorm_eps=1e-6,
                outproj_weight=None, outproj_bias=None, headdim=None, ngroups=1, norm_before_gate=True):
    batch, seqlen, columns = zxbcdt.shape
    nheads = A.shape[0]
    dim = nheads * (headdim or D.shape[1])
    states = (conv1d_weight.shape[0] - dim) // 2
    d_mlp = (columns - 2 * dim - 2 * states - nheads) // 2
    gate, value, z, xBC, dt = np.split(
        zxbcdt, np.cumsum([d_mlp, d_mlp, dim, dim + 2 * states]), axis=-1)
    xBC, _ = causal_conv1d(xBC.transpose(0, 2, 1), conv1d_weight, conv1d_bias, seq_idx,
                           activation=activation)
    x, B, C = np.split(xBC.transpose(0, 2, 1), [dim, dim + states], axis=-1)
    heads = (batch, seqlen, nheads, dim // nheads)
    groups = (batch, seqlen, ngroups, states // ngroups)
    y, final = mamba_chunk_scan(
        x.reshape(heads), dt, A, B.reshape(groups), C.reshape(groups), D,
        z.reshape(heads) if rmsnorm_weight is None else None, dt_bias, initial_states, seq_idx, True,
        dt_limit)
    y = y.reshape(batch, seqlen, dim)
    if rmsnorm_weight is not None:
        y = norm(y, rmsnorm_weight, z=z, eps=rmsnorm_eps, group_size=dim // ngroups,
                 norm_before_gate=norm_before_gate)
    y = np.concatenate([silu(gate) * value, y], axis=-1)
    if outproj_weight is not None:
        y = y @ outproj_weight.T + (0 if outproj_bias is None else outproj_bias)
    return y, final
