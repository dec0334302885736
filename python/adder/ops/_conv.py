"""The causal depthwise convolution in front of the scans."""

import operator
from typing import Any, Optional, Tuple, Union

from adder import _core

# A NumPy array, a PyTorch tensor, or an object with __dlpack__.
Array = Any


def at_least(op: str, name: str, value: Any, low: int) -> None:
    """TypeError for what is no integer, ValueError for one below `low`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{op}: {name}: expected an integer, got {type(value).__name__}") from None
    if number < low:
        raise ValueError(f"{op}: {name}: expected at least {low}, got {number}")


def is_silu(op: str, activation: Optional[str]) -> bool:
    """True for "silu" and its other name "swish", False for None; ValueError for all else."""
    if activation is None:
        return False
    if not isinstance(activation, str) or activation not in ("silu", "swish"):
        raise ValueError(f"{op}: activation: expected None, 'silu' or 'swish', got {activation!r}")
    return True


def causal_conv1d_fn(
    x: Array,
    weight: Array,
    bias: Optional[Array] = None,
    seq_idx: Optional[Array] = None,
    initial_states: Optional[Array] = None,
    return_final_states: bool = False,
    final_states_out: Optional[Array] = None,
    activation: Optional[str] = None,
) -> Union[Array, Tuple[Array, Array]]:
    """Depthwise causal convolution over whole sequences.

    ::

        out[t] = act(bias + sum_k weight[k] * x[t - (width - 1) + k])

    Args:
        x: (batch, dim, seqlen).
        weight: (dim, width), any width from 1 on.
        bias: (dim,).
        seq_idx: (batch, seqlen) int32 or int64. A new sequence starts wherever it changes: the inputs
            before it are 0. Negative entries are padding, with output 0.
        initial_states: (batch, dim, width - 1), oldest first: the inputs before the first sequence of
            each row. Unlike the reference it may be given together with seq_idx.
        return_final_states: return the last width - 1 inputs of each row's last sequence as well,
            behind those of its initial state (or 0) if it is shorter.
        final_states_out: (batch, dim, width - 1), written and returned if return_final_states.
        activation: None, "silu" or "swish".

    Returns:
        out (batch, dim, seqlen) with the dtype and memory order of x; with ``return_final_states``
        (out, final_states), of the same dtype.

    Raises:
        ValueError: shapes do not fit, or an unknown activation. TypeError: not arrays of a floating
        dtype on one device. RuntimeError: a gradient would be recorded.

    Source: causal_conv1d.causal_conv1d_fn.
    """
    return _core.causal_conv1d_fn(
        x, weight, bias, seq_idx, initial_states, return_final_states, final_states_out,
        is_silu("causal_conv1d_fn", activation),
    )


def causal_conv1d_update(
    x: Array,
    conv_state: Array,
    weight: Array,
    bias: Optional[Array] = None,
    activation: Optional[str] = None,
    cache_seqlens: Optional[Array] = None,
    conv_state_indices: Optional[Array] = None,
) -> Array:
    """The convolution for the next inputs of each sequence; ``conv_state`` is updated in place.

    Args:
        x: (batch, dim) or (batch, dim, seqlen).
        conv_state: (slots, dim, state_len), state_len >= width - 1, written: the last inputs, oldest
            first. slots is batch unless there are indices.
        weight: (dim, width), any width from 1 on.
        bias: (dim,).
        activation: None, "silu" or "swish".
        cache_seqlens: (batch,) int32 or int64, at least 0: conv_state is a circular buffer, and x is
            written from position cache_seqlens % state_len on.
        conv_state_indices: (batch,) int32 or int64, distinct: the slot of each row. A row of -1 is
            padding: its output is 0 and no slot is touched.

    Returns:
        out, of the shape and dtype of x.

    Raises:
        ValueError: shapes do not fit, an index is out of range or appears twice, conv_state is
            read-only, or an unknown activation. TypeError: not arrays of a floating dtype in host
            memory. RuntimeError: a gradient would be recorded.

    Source: causal_conv1d.causal_conv1d_update.
    """
    return _core.causal_conv1d_update(
        x, conv_state, weight, bias, is_silu("causal_conv1d_update", activation), cache_seqlens,
        conv_state_indices,
    )


def causal_conv1d_varlen_states(x: Array, cu_seqlens: Array, state_len: int) -> Array:
    """The last ``state_len`` inputs of each of the sequences that lie one after another in x.

    Args:
        x: (total, dim), any dtype that the operations know.
        cu_seqlens: (sequences + 1,) int32 or int64: where each begins, from 0, and where the last ends.
        state_len: how many inputs, at least 0.

    Returns:
        (sequences, dim, state_len) with the dtype of x, oldest first, with zeros in front where a
        sequence is shorter.

    Raises:
        ValueError: cu_seqlens falls, starts after 0 or goes beyond x; state_len < 0. TypeError: not
        arrays on one device.

    Source: causal_conv1d.causal_conv1d_varlen.causal_conv1d_varlen_states.
    """
    at_least("causal_conv1d_varlen_states", "state_len", state_len, 0)
    return _core.causal_conv1d_varlen_states(x, cu_seqlens, state_len)
