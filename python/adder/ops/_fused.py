"""Whole mixers behind their in_proj."""

from typing import Any, Optional, Tuple, Union

from adder import _core
from adder.ops._conv import is_silu
from adder.ops._ssd import check_chunks

# A NumPy array, a PyTorch tensor, or an object with __dlpack__.
Array = Any


def mamba_inner_fn(
    xz: Array,
    conv1d_weight: Array,
    conv1d_bias: Optional[Array],
    x_proj_weight: Array,
    delta_proj_weight: Array,
    out_proj_weight: Array,
    out_proj_bias: Optional[Array],
    A: Array,
    B: Optional[Array] = None,
    C: Optional[Array] = None,
    D: Optional[Array] = None,
    delta_bias: Optional[Array] = None,
    B_proj_bias: Optional[Array] = None,
    C_proj_bias: Optional[Array] = None,
    delta_softplus: bool = True,
    checkpoint_lvl: int = 1,
    b_rms_weight: Optional[Array] = None,
    c_rms_weight: Optional[Array] = None,
    dt_rms_weight: Optional[Array] = None,
    b_c_dt_rms_eps: float = 1e-6,
) -> Array:
    """The mixer of Mamba-1 behind its in_proj: convolution, projections, scan, out_proj.

    ``state`` below is dstate, or 2 * dstate if A is complex. What lies between the steps stays float32.

    Args:
        xz: (batch, 2 * dim, seqlen): x and the gate z.
        conv1d_weight: (dim, 1, width). conv1d_bias: (dim,) or None.
        x_proj_weight: (dt_rank + 2 * state, dim); without the rows of a B or C that is given.
        delta_proj_weight: (dim, dt_rank).
        out_proj_weight: (d_model, dim). out_proj_bias: (d_model,) or None.
        A: (dim, dstate), or complex64.
        B, C: as in selective_scan_fn; None: from x_proj.
        D, delta_bias: (dim,).
        B_proj_bias, C_proj_bias: (state,), added to the B and C of x_proj.
        delta_softplus: apply softplus to delta + delta_bias.
        checkpoint_lvl: for the reference's backward pass; ignored.
        b_rms_weight, c_rms_weight: (state,); dt_rms_weight: (dim,). RMS norms of B, C and delta.
        b_c_dt_rms_eps: of these norms.

    Returns:
        (batch, seqlen, d_model) with the dtype of xz.

    Raises:
        ValueError: shapes do not fit. TypeError: not arrays of a floating dtype on one device.
        RuntimeError: a gradient would be recorded.

    Source: mamba_ssm.ops.selective_scan_interface.mamba_inner_fn.
    """
    del checkpoint_lvl
    return _core.mamba_inner_fn(
        xz, conv1d_weight, conv1d_bias, x_proj_weight, delta_proj_weight, out_proj_weight,
        out_proj_bias, A, B, C, D, delta_bias, B_proj_bias, C_proj_bias, delta_softplus,
        b_rms_weight, c_rms_weight, dt_rms_weight, b_c_dt_rms_eps,
    )


def mamba_split_conv1d_scan_combined(
    zxbcdt: Array,
    conv1d_weight: Array,
    conv1d_bias: Optional[Array],
    dt_bias: Array,
    A: Array,
    D: Array,
    chunk_size: int,
    initial_states: Optional[Array] = None,
    seq_idx: Optional[Array] = None,
    dt_limit: Tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    activation: Optional[str] = "silu",
    rmsnorm_weight: Optional[Array] = None,
    rmsnorm_eps: float = 1e-6,
    outproj_weight: Optional[Array] = None,
    outproj_bias: Optional[Array] = None,
    headdim: Optional[int] = None,
    ngroups: int = 1,
    norm_before_gate: bool = True,
    state_dtype: Any = None,
) -> Union[Array, Tuple[Array, Array]]:
    """The mixer of Mamba-2 behind its in_proj: convolution, scan, gated norm, out_proj.

    dim is nheads * headdim. What lies between the steps stays float32.

    Args:
        zxbcdt: (batch, seqlen, 2 * dim + 2 * ngroups * dstate + nheads): z, x, B, C and dt. Columns in
            front of these, an even number 2 * d_mlp, are a gated MLP whose d_mlp results go in front of
            the scan's.
        conv1d_weight: (dim + 2 * ngroups * dstate, width). conv1d_bias: as many, or None.
        dt_bias: (nheads,).
        A: (nheads,).
        D: (nheads, headdim), or (nheads,) together with headdim.
        chunk_size: at least 1. The reference's chunks; results do not depend on it.
        initial_states: (batch, nheads, headdim, dstate).
        seq_idx: (batch, seqlen) int32 or int64: as in mamba_chunk_scan_combined; the convolution
            starts anew with every sequence as well.
        dt_limit: (low, high), after softplus.
        return_final_states: return the state after the last sequence of each row.
        activation: of the convolution: None, "silu" or "swish".
        rmsnorm_weight: (dim,): RMS norm with z as its gate, in ngroups groups; None: z gates the scan.
        norm_before_gate: as in rmsnorm_fn.
        state_dtype: as in mamba_chunk_scan_combined.
        outproj_weight: (d_model, d_mlp + dim). outproj_bias: (d_model,).

    Returns:
        out (batch, seqlen, d_model), or (batch, seqlen, d_mlp + dim) without outproj_weight, with the
        dtype of zxbcdt; with ``return_final_states`` (out, final_states), the latter
        (batch, nheads, headdim, dstate) float32.

    Raises:
        ValueError: shapes or limits do not fit. TypeError: not arrays of a floating dtype in host
        memory. RuntimeError: a gradient would be recorded.

    Source: mamba_ssm.ops.triton.ssd_combined.mamba_split_conv1d_scan_combined.
    """
    op = "mamba_split_conv1d_scan_combined"
    low, high = check_chunks(op, chunk_size, dt_limit, state_dtype)
    return _core.mamba_split_conv1d_scan_combined(
        zxbcdt, conv1d_weight, conv1d_bias, dt_bias, A, D, initial_states, seq_idx, low, high,
        return_final_states, is_silu(op, activation), rmsnorm_weight, rmsnorm_eps, outproj_weight,
        outproj_bias, headdim or 0, ngroups, norm_before_gate,
    )
