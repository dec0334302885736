"""Names of Mamba-3 that mamba_ssm imports when it is imported."""


def _refuse(name):
    raise NotImplementedError(f"{name}: Adder does not have Mamba-3's operations")


def mamba3_siso_combined(*args, **kwargs):
    """Raises NotImplementedError."""
    _refuse("mamba3_siso_combined")


def apply_rotary_qk_inference_fwd(*args, **kwargs):
    """Raises NotImplementedError."""
    _refuse("apply_rotary_qk_inference_fwd")
