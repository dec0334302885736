"""The extension module causal_conv1d_cuda and causal_conv1d.cpp_functions over it."""

from adder import ops


def causal_conv1d_fwd_function(x, weight, bias, seq_idx, initial_states, final_states_out, silu_activation):
    """As causal_conv1d.cpp_functions.causal_conv1d_fwd_function.

    x: (batch, dim, seqlen); weight: (dim, width); bias: (dim,); seq_idx: (batch, seqlen) int32;
    initial_states, final_states_out (written): (batch, dim, width - 1). Returns (batch, dim, seqlen).
    """
    import torch

    with torch.no_grad():  # called inside autograd functions
        result = ops.causal_conv1d_fn(
            x, weight, bias, seq_idx=seq_idx, initial_states=initial_states,
            return_final_states=final_states_out is not None, final_states_out=final_states_out,
            activation="silu" if silu_activation else None,
        )
    return result if final_states_out is None else result[0]


def causal_conv1d_update_function(
    x, conv_state, weight, bias, silu_activation, cache_seqlens=None, conv_state_indices=None
):
    """As causal_conv1d.cpp_functions.causal_conv1d_update_function; conv_state is updated in place.

    x: (batch, dim) or (batch, dim, seqlen); conv_state: (batch, dim, state_len). Returns a tensor like x.
    """
    import torch

    with torch.no_grad():
        return ops.causal_conv1d_update(
            x, conv_state, weight, bias, activation="silu" if silu_activation else None,
            cache_seqlens=cache_seqlens, conv_state_indices=conv_state_indices,
        )


def causal_conv1d_bwd_function(*args, **kwargs):
    """Raises NotImplementedError."""
    raise NotImplementedError("causal_conv1d: Adder has no backward pass; run the model under torch.no_grad()")


causal_conv1d_bwd = causal_conv1d_bwd_function


def causal_conv1d_fwd(x, weight, bias, *rest):
    """As causal_conv1d_cuda.causal_conv1d_fwd, whose arguments grew with its versions:

    1.0 (silu), 1.1 (seq_idx, silu), 1.2 (seq_idx, initial_states, final_states_out, silu) return the
    result; 1.5.1 (seq_idx, initial_states, out, final_states_out, silu) writes it to `out`.
    """
    if len(rest) == 5:
        seq_idx, initial_states, out, final_states_out, silu = rest
        result = causal_conv1d_fwd_function(x, weight, bias, seq_idx, initial_states, final_states_out, silu)
        out.copy_(result)
        return None
    if len(rest) not in (1, 2, 4):
        raise TypeError(f"causal_conv1d_fwd: expected 4, 5, 7 or 8 arguments, got {3 + len(rest)}")
    states = (None,) * (4 - len(rest)) if len(rest) < 4 else ()
    *before, silu = rest
    return causal_conv1d_fwd_function(x, weight, bias, *before, *states, silu)


def causal_conv1d_update(x, conv_state, weight, bias, *rest):
    """As causal_conv1d_cuda.causal_conv1d_update, in its versions:

    1.0 (silu), 1.4 (silu, cache_seqlens), 1.5 (silu, cache_seqlens, conv_state_indices) return the
    result; 1.5.1 (out, silu, cache_seqlens, conv_state_indices) writes it to `out`.
    """
    if len(rest) == 4:
        out, *arguments = rest
        out.copy_(causal_conv1d_update_function(x, conv_state, weight, bias, *arguments))
        return None
    if len(rest) not in (1, 2, 3):
        raise TypeError(f"causal_conv1d_update: expected 5 to 8 arguments, got {4 + len(rest)}")
    return causal_conv1d_update_function(x, conv_state, weight, bias, *rest)
