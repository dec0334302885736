"""VMamba's extension module selective_scan_cuda_core (kernels/selective_scan/csrc)."""

from adder.compat._selective_scan_cuda import no_backward, scan


def fwd(u, delta, A, B, C, D, delta_bias, delta_softplus, nrows=1):
    """As selective_scan_cuda_core.fwd: [out, x]; there is no gate, and nrows only tunes the kernel."""
    return scan(u, delta, A, B, C, D, delta_bias, delta_softplus)


def bwd(*args, **kwargs):
    """Raises NotImplementedError."""
    no_backward("selective_scan_cuda_core")
