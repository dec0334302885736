"""The extension module: what the package calls. Operands are positional; the functions of adder.ops
document them."""
from typing import Any, Optional, Tuple, Union

_Array = Any
_OptionalArray = Optional[Any]

def set_num_threads(n: int) -> None: ...
def get_num_threads() -> int: ...
def selective_scan_fn(
    u: _Array, delta: _Array, A: _Array, B: _Array, C: _Array, D: _OptionalArray, z: _OptionalArray,
    delta_bias: _OptionalArray, delta_softplus: bool, return_last_state: bool,
    initial_state: _OptionalArray, /,
) -> Union[_Array, Tuple[_Array, _Array]]: ...
def selective_state_update(
    state: _Array, x: _Array, dt: _Array, A: _Array, B: _Array, C: _Array, D: _OptionalArray,
    z: _OptionalArray, dt_bias: _OptionalArray, dt_softplus: bool,
    state_batch_indices: _OptionalArray, /,
) -> _Array: ...
def mamba_chunk_scan_combined(
    x: _Array, dt: _Array, A: _Array, B: _Array, C: _Array, D: _OptionalArray, z: _OptionalArray,
    dt_bias: _OptionalArray, initial_states: _OptionalArray, seq_idx: _OptionalArray,
    cu_seqlens: _OptionalArray, dt_softplus: bool, dt_min: float, dt_max: float,
    return_final_states: bool, return_varlen_states: bool, /,
) -> Union[_Array, Tuple[_Array, ...]]: ...
def causal_conv1d_fn(
    x: _Array, weight: _Array, bias: _OptionalArray, seq_idx: _OptionalArray,
    initial_states: _OptionalArray, return_final_states: bool, final_states_out: _OptionalArray,
    silu: bool, /,
) -> Union[_Array, Tuple[_Array, _Array]]: ...
def causal_conv1d_update(
    x: _Array, conv_state: _Array, weight: _Array, bias: _OptionalArray, silu: bool,
    cache_seqlens: _OptionalArray, conv_state_indices: _OptionalArray, /,
) -> _Array: ...
def causal_conv1d_varlen_states(x: _Array, cu_seqlens: _Array, state_len: int, /) -> _Array: ...
def gated_norm(
    op: str, x: _Array, weight: _Array, bias: _OptionalArray, z: _OptionalArray, eps: float,
    group_size: int, norm_before_gate: bool, is_rms_norm: bool, /,
) -> _Array: ...
def residual_norm(
    op: str, x: _Array, weight: _Array, bias: _OptionalArray, residual: _OptionalArray,
    x1: _OptionalArray, weight1: _OptionalArray, bias1: _OptionalArray, eps: float,
    rowscale: _OptionalArray, prenorm: bool, residual_in_fp32: bool, is_rms_norm: bool, /,
) -> Tuple[_Array, _OptionalArray, _OptionalArray]: ...
def mamba_inner_fn(
    xz: _Array, conv1d_weight: _Array, conv1d_bias: _OptionalArray, x_proj_weight: _Array,
    delta_proj_weight: _Array, out_proj_weight: _Array, out_proj_bias: _OptionalArray, A: _Array,
    B: _OptionalArray, C: _OptionalArray, D: _OptionalArray, delta_bias: _OptionalArray,
    B_proj_bias: _OptionalArray, C_proj_bias: _OptionalArray, delta_softplus: bool,
    b_rms_weight: _OptionalArray, c_rms_weight: _OptionalArray, dt_rms_weight: _OptionalArray,
    b_c_dt_rms_eps: float, /,
) -> _Array: ...
def mamba_split_conv1d_scan_combined(
    zxbcdt: _Array, conv1d_weight: _Array, conv1d_bias: _OptionalArray, dt_bias: _OptionalArray,
    A: _Array, D: _Array, initial_states: _OptionalArray, seq_idx: _OptionalArray, dt_min: float,
    dt_max: float, return_final_states: bool, silu: bool, rmsnorm_weight: _OptionalArray,
    rmsnorm_eps: float, outproj_weight: _OptionalArray, outproj_bias: _OptionalArray, headdim: int,
    ngroups: int, norm_before_gate: bool, /,
) -> Union[_Array, Tuple[_Array, _Array]]: ...
