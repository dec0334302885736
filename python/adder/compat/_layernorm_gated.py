"""mamba_ssm.ops.triton.layernorm_gated's modules; imports PyTorch."""

import torch

from adder import ops


class _Gated(torch.nn.Module):
    def __init__(self, hidden_size, eps=1e-5, group_size=None, norm_before_gate=True, device=None, dtype=None):
        super().__init__()
        self.eps = eps
        self.group_size = group_size
        self.norm_before_gate = norm_before_gate
        self.weight = torch.nn.Parameter(torch.empty(hidden_size, device=device, dtype=dtype))
        self.register_parameter("bias", self._make_bias())
        self.reset_parameters()

    def reset_parameters(self):
        torch.nn.init.ones_(self.weight)
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)

    def forward(self, x, z=None):
        return ops.layernorm_fn(
            x, self.weight, self.bias, z, self.eps, self.group_size, self.norm_before_gate, self._is_rms_norm
        )


class RMSNorm(_Gated):
    """As layernorm_gated.RMSNorm: weight (hidden_size,); forward(x, z) -> rmsnorm_fn."""

    _is_rms_norm = True

    def _make_bias(self):
        return None


class LayerNorm(_Gated):
    """As layernorm_gated.LayerNorm: weight and bias (hidden_size,); forward(x, z) -> layernorm_fn."""

    _is_rms_norm = False

    def _make_bias(self):
        return torch.nn.Parameter(torch.empty_like(self.weight))
