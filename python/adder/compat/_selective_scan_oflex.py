"""VMamba's extension module selective_scan_cuda_oflex (kernels/selective_scan/csrc)."""

from adder.compat._selective_scan_cuda import no_backward, scan


def fwd(u, delta, A, B, C, D, delta_bias, delta_softplus, nrows=1, out_float=True):
    """As selective_scan_cuda_oflex.fwd: [out, x], where `out` is float32 if out_float.

    delta and delta_bias may have fewer channels than u, each for a group of neighbours:
    delta (batch, dim / n, seqlen), delta_bias (dim / n,).
    """
    import torch

    with torch.no_grad():
        dim, delta_dim = u.shape[1], delta.shape[1]
        if delta_dim == 0 or dim % delta_dim != 0:
            raise ValueError(f"delta: expected a number of channels that divides u's {dim}, got {delta_dim}")
        if delta_dim != dim:
            delta = delta.repeat_interleave(dim // delta_dim, dim=1)
            if delta_bias is not None:
                delta_bias = delta_bias.repeat_interleave(dim // delta_dim)
        if out_float:
            # Half values are exact in float32, so this only keeps the result from being rounded.
            u, delta, B, C = u.float(), delta.float(), B.float(), C.float()
    return scan(u, delta, A, B, C, D, delta_bias, delta_softplus)


def bwd(*args, **kwargs):
    """Raises NotImplementedError."""
    no_backward("selective_scan_cuda_oflex")
