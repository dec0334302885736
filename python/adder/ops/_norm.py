"""Normalisation: of the residual stream, and behind the gate of Mamba-2."""

from typing import Any, Optional, Tuple, Union

from adder import _core
from adder.ops._conv import at_least

# A NumPy array, a PyTorch tensor, or an object with __dlpack__.
Array = Any


def rmsnorm_fn(
    x: Array,
    weight: Array,
    bias: Optional[Array],
    z: Optional[Array] = None,
    eps: float = 1e-6,
    group_size: Optional[int] = None,
    norm_before_gate: bool = True,
) -> Array:
    """RMS norm along the last axis with a gate.

    ::

        norm_before_gate:  out = (x / sqrt(mean(x^2) + eps) * weight + bias) * silu(z)
        otherwise:         v = x * silu(z);  out = v / sqrt(mean(v^2) + eps) * weight + bias

    Args:
        x: (..., dim).
        weight: (dim,).
        bias: (dim,) or None.
        z: as x; None: no gate.
        group_size: the mean is taken over so many neighbouring elements, a divisor of dim; None: dim.
            Mamba-2 uses dim // ngroups.
        norm_before_gate: the function's default; the mixer of Mamba-2 passes False.

    Returns:
        out, of the shape and dtype of x.

    Raises:
        ValueError: shapes do not fit, or group_size does not divide dim. TypeError: not arrays of a
        floating dtype on one device. RuntimeError: a gradient would be recorded.

    Source: mamba_ssm.ops.triton.layernorm_gated.rmsnorm_fn.
    """
    return _gated("rmsnorm_fn", x, weight, bias, z, eps, group_size, norm_before_gate, True)


def layernorm_fn(
    x: Array,
    weight: Array,
    bias: Optional[Array],
    z: Optional[Array] = None,
    eps: float = 1e-6,
    group_size: Optional[int] = None,
    norm_before_gate: bool = True,
    is_rms_norm: bool = False,
) -> Array:
    """Layer norm (or RMS norm) along the last axis with a gate; arguments as rmsnorm_fn.

    Source: mamba_ssm.ops.triton.layernorm_gated.layernorm_fn.
    """
    return _gated("layernorm_fn", x, weight, bias, z, eps, group_size, norm_before_gate, is_rms_norm)


def _gated(op, x, weight, bias, z, eps, group_size, norm_before_gate, is_rms_norm):
    if group_size is not None:
        at_least(op, "group_size", group_size, 1)
    return _core.gated_norm(
        op, x, weight, bias, z, eps, group_size or 0, norm_before_gate, is_rms_norm
    )


def layer_norm_fn(
    x: Array,
    weight: Array,
    bias: Optional[Array],
    residual: Optional[Array] = None,
    x1: Optional[Array] = None,
    weight1: Optional[Array] = None,
    bias1: Optional[Array] = None,
    eps: float = 1e-6,
    dropout_p: float = 0.0,
    rowscale: Optional[Array] = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    is_rms_norm: bool = False,
    return_dropout_mask: bool = False,
) -> Union[Array, Tuple[Optional[Array], ...]]:
    """Layer norm (or RMS norm) of x plus the residual stream along the last axis.

    ::

        v   = x * rowscale + x1 + residual                  what is None is left out
        out = norm(v) * weight + bias;  out1 = norm(v) * weight1 + bias1

    Args:
        x, residual, x1: (..., dim).
        weight, weight1: (dim,).
        bias, bias1: (dim,) or None.
        dropout_p: must be 0: dropout belongs to training.
        rowscale: (...), one factor for each row; not together with x1.
        prenorm: return v, the new residual, as well: with the dtype of residual if there is one, else
            float32 if residual_in_fp32, else that of x.
        is_rms_norm: divide by the root of the mean square instead of mean and variance.
        return_dropout_mask: append the two masks, which are None without dropout.

    Returns:
        out, of the shape and dtype of x; followed, in a tuple, by out1 if there is a weight1, v if
        prenorm, and the masks if return_dropout_mask.

    Raises:
        ValueError: shapes do not fit. TypeError: not arrays of a floating dtype on one device.
        NotImplementedError: dropout. RuntimeError: a gradient would be recorded.

    Source: mamba_ssm.ops.triton.layer_norm.layer_norm_fn.
    """
    return _residual("layer_norm_fn", x, weight, bias, residual, x1, weight1, bias1, eps, dropout_p,
                     rowscale, prenorm, residual_in_fp32, is_rms_norm, return_dropout_mask)


def rms_norm_fn(
    x: Array,
    weight: Array,
    bias: Optional[Array],
    residual: Optional[Array] = None,
    x1: Optional[Array] = None,
    weight1: Optional[Array] = None,
    bias1: Optional[Array] = None,
    eps: float = 1e-6,
    dropout_p: float = 0.0,
    rowscale: Optional[Array] = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    return_dropout_mask: bool = False,
) -> Union[Array, Tuple[Optional[Array], ...]]:
    """RMS norm of x plus the residual stream: layer_norm_fn with is_rms_norm=True.

    Source: mamba_ssm.ops.triton.layer_norm.rms_norm_fn.
    """
    return _residual("rms_norm_fn", x, weight, bias, residual, x1, weight1, bias1, eps, dropout_p,
                     rowscale, prenorm, residual_in_fp32, True, return_dropout_mask)


def _residual(op, x, weight, bias, residual, x1, weight1, bias1, eps, dropout_p, rowscale, prenorm,
              residual_in_fp32, is_rms_norm, return_dropout_mask):
    if dropout_p != 0:
        raise NotImplementedError(f"{op}: dropout_p: expected 0, got {dropout_p}: there is no dropout")
    if rowscale is not None and x1 is not None:
        raise ValueError(f"{op}: rowscale: expected None together with x1")
    out, out1, new_residual = _core.residual_norm(
        op, x, weight, bias, residual, x1, weight1, bias1, eps, rowscale, prenorm, residual_in_fp32,
        is_rms_norm)
    results = [out]
    if weight1 is not None:
        results.append(out1)
    if prenorm:
        results.append(new_residual)
    if return_dropout_mask:
        results += [None, None]
    return out if len(results) == 1 else tuple(results)
