"""The extension module selective_scan_cuda of mamba-ssm (csrc/selective_scan/selective_scan.cpp)."""

from adder import ops

# The CUDA kernel scans this many steps at once and hands out the state after each such piece.
_KERNEL_CHUNK = 2048


def no_backward(module):
    raise NotImplementedError(
        f"{module}.bwd: Adder has no backward pass; run the model under torch.no_grad(), "
        "or train it with the original package"
    )


def scan(u, delta, A, B, C, D, delta_bias, delta_softplus, z=None):
    """The results of the kernels: [out, x], and the gated output as a third with z.

    x: (batch, dim, ceil(seqlen / 2048), 2 * dstate) in A's dtype. Its last chunk has the last state at
    odd places, which is what callers read (x[:, :, -1, 1::2]); the rest, which only the backward pass
    reads, is NaN.
    """
    import torch

    options = {"delta_bias": delta_bias, "delta_softplus": delta_softplus}
    # Extension modules know nothing of autograd: their callers are autograd functions.
    with torch.no_grad():
        out, last_state = ops.selective_scan_fn(u, delta, A, B, C, D, return_last_state=True, **options)
        batch, dim, seqlen = u.shape
        chunks = max(1, -(-seqlen // _KERNEL_CHUNK))
        x = A.new_full((batch, dim, chunks, 2 * A.shape[1]), float("nan"))
        x[:, :, -1, 1::2] = last_state
        if z is None:
            return [out, x]
        # Scanned again, so that its bits are those of selective_scan_fn: `out` is rounded already.
        return [out, x, ops.selective_scan_fn(u, delta, A, B, C, D, z=z, **options)]


def fwd(u, delta, A, B, C, D, z, delta_bias, delta_softplus):
    """As selective_scan_cuda.fwd: [out, x], and the output times silu(z) as a third with z.

    u, delta, z: (batch, dim, seqlen); A: (dim, dstate); B, C: (dim, dstate) or (batch, groups, dstate,
    seqlen); D, delta_bias: (dim,) or None.
    """
    return scan(u, delta, A, B, C, D, delta_bias, delta_softplus, z)


def bwd(*args, **kwargs):
    """Raises NotImplementedError."""
    no_backward("selective_scan_cuda")
