"""The scan of Mamba-2, alone and with everything around it."""

from typing import Any, Optional, Tuple, Union

from adder import _core
from adder.ops._conv import at_least

# A NumPy array, a PyTorch tensor, or an object with __dlpack__.
Array = Any


def mamba_chunk_scan_combined(
    x: Array,
    dt: Array,
    A: Array,
    B: Array,
    C: Array,
    chunk_size: int,
    D: Optional[Array] = None,
    z: Optional[Array] = None,
    dt_bias: Optional[Array] = None,
    initial_states: Optional[Array] = None,
    seq_idx: Optional[Array] = None,
    cu_seqlens: Optional[Array] = None,
    dt_softplus: bool = False,
    dt_limit: Tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
    state_dtype: Any = None,
) -> Union[Array, Tuple[Array, ...]]:
    """The scan of Mamba-2 (state space duality) over whole sequences.

    ::

        dt[t]  = clamp(dt[t] + dt_bias, *dt_limit);  softplus before the clamp if dt_softplus
        S[t]   = exp(dt[t] * A) * S[t-1] + dt[t] * outer(x[t], B[t])
        out[t] = (S[t] @ C[t] + D * x[t]) * silu(z[t])                 without z: no gate

    Args:
        x: (batch, seqlen, nheads, headdim).
        dt: (batch, seqlen, nheads).
        A: (nheads,).
        B, C: (batch, seqlen, ngroups, dstate); head h uses group h // (nheads // ngroups).
        chunk_size: at least 1. The reference's chunks; results do not depend on it.
        D: (nheads,) or (nheads, headdim).
        z: (batch, seqlen, nheads, headdim).
        dt_bias: (nheads,).
        initial_states: (batch, nheads, headdim, dstate), of the first sequence of each row; with
            cu_seqlens it may be (sequences, nheads, headdim, dstate) instead, one for each.
        seq_idx: (batch, seqlen) int32 or int64. A new sequence, with a state of 0, starts wherever it
            changes; negative entries are padding: their output is 0 and they change no state.
        cu_seqlens: (sequences + 1,) int32 or int64; batch must be 1. Sequence i is
            [cu_seqlens[i], cu_seqlens[i+1]), and what follows the last one is padding. Unlike in the
            reference it says where states start anew, with seq_idx or without.
        dt_softplus: apply softplus to dt + dt_bias.
        dt_limit: (low, high).
        return_final_states: return the state after the last sequence of each row.
        return_varlen_states: return the state after each sequence of cu_seqlens.
        state_dtype: a floating dtype of NumPy or PyTorch, or None: in which the reference keeps the states
            between its chunks. Here they are float32 whatever it says.

    Returns:
        out (batch, seqlen, nheads, headdim) with the dtype of x; followed, in a tuple, by final_states
        (batch, nheads, headdim, dstate) and varlen_states (sequences, nheads, headdim, dstate) if
        asked for, both float32.

    Raises:
        ValueError: shapes or limits do not fit. TypeError: not arrays of a floating dtype in host
        memory. RuntimeError: a gradient would be recorded.

    Source: mamba_ssm.ops.triton.ssd_combined.mamba_chunk_scan_combined.
    """
    low, high = check_chunks("mamba_chunk_scan_combined", chunk_size, dt_limit, state_dtype)
    return _core.mamba_chunk_scan_combined(
        x, dt, A, B, C, D, z, dt_bias, initial_states, seq_idx, cu_seqlens, dt_softplus, low, high,
        return_final_states, return_varlen_states,
    )


_STATE_DTYPES = ("float32", "float16", "bfloat16", "float64")


def check_chunks(
    op: str, chunk_size: int, dt_limit: Tuple[float, float], state_dtype: Any
) -> Tuple[float, float]:
    """dt_limit as two numbers, once chunk_size and state_dtype have been found to be possible."""
    at_least(op, "chunk_size", chunk_size, 1)
    if state_dtype is not None:
        # np.float32, np.dtype("float32"), torch.float32
        name = getattr(state_dtype, "__name__", str(state_dtype)).rpartition(".")[2]
        if name not in _STATE_DTYPES:
            raise TypeError(
                f"{op}: state_dtype: expected None or one of {', '.join(_STATE_DTYPES)}, got {state_dtype!r}"
            )
    try:
        low, high = dt_limit
    except (TypeError, ValueError):
        raise ValueError(f"{op}: dt_limit: expected (low, high), got {dt_limit!r}") from None
    return low, high
