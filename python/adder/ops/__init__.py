"""The operations of mamba-ssm and causal-conv1d, without CUDA and without PyTorch.

Names, signatures, defaults, layouts, in-place semantics and returned tuples are those of mamba-ssm 2
and causal-conv1d. Operands are NumPy arrays, PyTorch tensors, or anything with ``__dlpack__``, in
host memory or, where the build has the CUDA backend, all on one GPU (docs/python.md); of float32,
float16, bfloat16 (in NumPy the dtype of ``ml_dtypes``) or float64, mixed freely, with any strides;
nothing is copied on the way in. Arithmetic is float32, whatever the dtypes.
Results are of the kind of the first argument, in the same memory: arrays, or tensors; a DeviceArray
for arrays on a GPU that are known by DLPack only.

There is no backward pass: a tensor that requires a gradient raises RuntimeError unless gradients are
off (``torch.no_grad()``). A wrong shape or value raises ValueError, a wrong type, dtype or device
TypeError; both name the argument, what was expected and what was got. Functions release the GIL and
may be called from many threads at once.
"""

from adder._core import DeviceArray
from adder.ops._conv import causal_conv1d_fn, causal_conv1d_update, causal_conv1d_varlen_states
from adder.ops._fused import mamba_inner_fn, mamba_split_conv1d_scan_combined
from adder.ops._norm import layer_norm_fn, layernorm_fn, rms_norm_fn, rmsnorm_fn
from adder.ops._scan import selective_scan_fn, selective_state_update
from adder.ops._ssd import mamba_chunk_scan_combined
from adder.ops._threads import get_num_threads, set_num_threads

__all__ = [
    "DeviceArray",
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "causal_conv1d_varlen_states",
    "get_num_threads",
    "layer_norm_fn",
    "layernorm_fn",
    "mamba_chunk_scan_combined",
    "mamba_inner_fn",
    "mamba_split_conv1d_scan_combined",
    "rms_norm_fn",
    "rmsnorm_fn",
    "selective_scan_fn",
    "selective_state_update",
    "set_num_threads",
]
