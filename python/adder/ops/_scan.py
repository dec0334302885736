"""The recurrences of Mamba-1 and Mamba-2."""

from typing import Any, Optional, Tuple, Union

from adder import _core

# A NumPy array, a PyTorch tensor, or an object with __dlpack__.
Array = Any


def selective_scan_fn(
    u: Array,
    delta: Array,
    A: Array,
    B: Array,
    C: Array,
    D: Optional[Array] = None,
    z: Optional[Array] = None,
    delta_bias: Optional[Array] = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    *,
    initial_state: Optional[Array] = None,
) -> Union[Array, Tuple[Array, Array]]:
    """The selective scan of Mamba-1 over whole sequences.

    ::

        dt[t]  = delta[t] + delta_bias;  softplus of it if delta_softplus
        h[t]   = exp(dt[t] * A) * h[t-1] + dt[t] * B[t] * u[t]         h[-1] = initial_state or 0
        out[t] = (C[t] . h[t] + D * u[t]) * silu(z[t])                 without z: no gate

    Args:
        u: (batch, dim, seqlen).
        delta: (batch, dim, seqlen).
        A: (dim, dstate); complex64 for complex states.
        B, C: (batch, dstate, seqlen), (batch, groups, dstate, seqlen) or, constant in time,
            (dim, dstate). With a complex A the first two hold pairs (real, imaginary) along their
            last axis, which is 2 * seqlen long; the constant form is complex64.
        D, delta_bias: (dim,).
        z: (batch, dim, seqlen).
        delta_softplus: apply softplus to delta + delta_bias.
        return_last_state: return the state after the last step as well.
        initial_state: (batch, dim, dstate), complex64 if A is; an addition to the reference.

    Returns:
        out (batch, dim, seqlen) with the dtype of u; with ``return_last_state`` (out, last_state),
        last_state (batch, dim, dstate) in float32, or complex64 if A is complex.

    Raises:
        ValueError: shapes do not fit. TypeError: not arrays of a floating dtype on one device.
        RuntimeError: a gradient would be recorded.

    Source: mamba_ssm.ops.selective_scan_interface.selective_scan_fn.
    """
    return _core.selective_scan_fn(
        u, delta, A, B, C, D, z, delta_bias, delta_softplus, return_last_state, initial_state
    )


def selective_state_update(
    state: Array,
    x: Array,
    dt: Array,
    A: Array,
    B: Array,
    C: Array,
    D: Optional[Array] = None,
    z: Optional[Array] = None,
    dt_bias: Optional[Array] = None,
    dt_softplus: bool = False,
    state_batch_indices: Optional[Array] = None,
) -> Array:
    """One step of the recurrence of either Mamba; ``state`` is updated in place.

    ::

        dt    = dt + dt_bias;  softplus of it if dt_softplus
        state = exp(dt * A) * state + dt * B * x
        out   = (C . state + D * x) * silu(z)                          without z: no gate

    Args:
        state: (slots, dim, dstate) or (slots, nheads, headdim, dstate), written; slots is batch
            unless there are indices.
        x, dt, z: (batch, dim) or (batch, nheads, headdim).
        A: (dim, dstate) or (nheads, headdim, dstate).
        B, C: (batch, dstate) or (batch, ngroups, dstate).
        D, dt_bias: (dim,) or (nheads, headdim).
        dt_softplus: apply softplus to dt + dt_bias.
        state_batch_indices: (batch,) int32 or int64, distinct: the slot of each row. A row of -1 is
            padding: its output is 0 and no slot is touched.

    Returns:
        out, of the shape and dtype of x. dt, A and dt_bias that are expanded over headdim (stride 0,
        A over dstate as well), as Mamba-2 passes them, cost one exponential for a head.

    Raises:
        ValueError: shapes do not fit, an index is out of range or appears twice, or the state is
            read-only. TypeError: not arrays of a floating dtype on one device. RuntimeError: a
            gradient would be recorded.

    Source: mamba_ssm.ops.triton.selective_state_update.selective_state_update.
    """
    return _core.selective_state_update(
        state, x, dt, A, B, C, D, z, dt_bias, dt_softplus, state_batch_indices
    )
