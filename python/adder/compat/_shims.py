"""Which names the shims provide: module name -> Shim."""

import dataclasses

# The releases whose interfaces the shims have; model code compares them (transformers wants >= 2.0.4).
VERSIONS = {"mamba_ssm": "2.3.2", "causal_conv1d": "1.6.1"}

ROOTS = frozenset(
    [
        "mamba_ssm",
        "causal_conv1d",
        "causal_conv1d_cuda",
        "selective_scan_cuda",
        "selective_scan_cuda_core",
        "selective_scan_cuda_oflex",
    ]
)


@dataclasses.dataclass(frozen=True)
class Shim:
    """One module. names: attribute -> the module of Adder that has it under the same name.

    replaces: also when the package is installed; the other shims only stand in for missing packages.
    """

    names: dict
    replaces: bool = True
    package: bool = False


def _from(module, *names):
    return {name: module for name in names}


_OPS = "adder.ops"
_LAYER_NORM = {
    **_from(_OPS, "layer_norm_fn", "rms_norm_fn"),
    **_from("adder.compat._layer_norm", "RMSNorm", "_layer_norm_fwd"),
}
_CONV = _from(_OPS, "causal_conv1d_fn", "causal_conv1d_update")
_CONV_FUNCTIONS = ("causal_conv1d_fwd_function", "causal_conv1d_bwd_function", "causal_conv1d_update_function")
_CONV_CUDA = ("causal_conv1d_fwd", "causal_conv1d_bwd", "causal_conv1d_update")
_MAMBA3 = "mamba_ssm.ops.triton.mamba3."
_SCAN = _from(_OPS, "selective_scan_fn", "mamba_inner_fn")
_SSD = _from(_OPS, "mamba_chunk_scan_combined", "mamba_split_conv1d_scan_combined")

SHIMS = {
    "mamba_ssm": Shim(_SCAN, replaces=False, package=True),
    "mamba_ssm.ops": Shim({}, replaces=False, package=True),
    "mamba_ssm.ops.selective_scan_interface": Shim(_SCAN),
    "mamba_ssm.ops.triton": Shim({}, replaces=False, package=True),
    "mamba_ssm.ops.triton.layer_norm": Shim(_LAYER_NORM),
    "mamba_ssm.ops.triton.layernorm": Shim(_LAYER_NORM),  # its name in mamba-ssm 1
    "mamba_ssm.ops.triton.layernorm_gated": Shim(
        {
            **_from(_OPS, "rmsnorm_fn", "layernorm_fn"),
            **_from("adder.compat._layernorm_gated", "LayerNorm", "RMSNorm"),
        }
    ),
    "mamba_ssm.ops.triton.selective_state_update": Shim(_from(_OPS, "selective_state_update")),
    "mamba_ssm.ops.triton.ssd_combined": Shim(_SSD),
    # mamba_ssm imports these on import; Adder has no Mamba-3 yet, and they say so when called.
    _MAMBA3 + "mamba3_siso_combined": Shim(_from("adder.compat._mamba3", "mamba3_siso_combined")),
    _MAMBA3 + "mamba3_mimo_rotary_step": Shim(_from("adder.compat._mamba3", "apply_rotary_qk_inference_fwd")),
    "causal_conv1d": Shim(_CONV, replaces=False, package=True),
    "causal_conv1d.causal_conv1d_interface": Shim(_CONV),
    "causal_conv1d.causal_conv1d_varlen": Shim(_from(_OPS, "causal_conv1d_varlen_states")),
    "causal_conv1d.cpp_functions": Shim(_from("adder.compat._causal_conv1d", *_CONV_FUNCTIONS)),
    "causal_conv1d_cuda": Shim(_from("adder.compat._causal_conv1d", *_CONV_CUDA)),
    "selective_scan_cuda": Shim(_from("adder.compat._selective_scan_cuda", "fwd", "bwd")),
    "selective_scan_cuda_core": Shim(_from("adder.compat._selective_scan_core", "fwd", "bwd")),
    "selective_scan_cuda_oflex": Shim(_from("adder.compat._selective_scan_oflex", "fwd", "bwd")),
}

# What people look for in the packages and stand-ins do not have.
MODULES_OF_MAMBA = ("Mamba", "Mamba2", "Mamba3", "MambaLMHeadModel")
