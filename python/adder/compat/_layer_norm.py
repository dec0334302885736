"""mamba_ssm.ops.triton.layer_norm's module and inner function; imports PyTorch."""

import torch

from adder import ops


class RMSNorm(torch.nn.Module):
    """As mamba_ssm.ops.triton.layer_norm.RMSNorm: weight (hidden_size,), no bias.

    forward(x (..., hidden_size), residual=None or like x) -> rms_norm_fn's result: y like x, or
    (y, residual + x) when prenorm. Dropout in training is an error of rms_norm_fn.
    """

    def __init__(self, hidden_size, eps=1e-5, dropout_p=0.0, device=None, dtype=None):
        super().__init__()
        self.eps = eps
        self.drop = torch.nn.Dropout(dropout_p) if dropout_p > 0.0 else None
        self.weight = torch.nn.Parameter(torch.empty(hidden_size, device=device, dtype=dtype))
        self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        torch.nn.init.ones_(self.weight)

    def forward(self, x, residual=None, prenorm=False, residual_in_fp32=False):
        dropout_p = self.drop.p if self.drop is not None and self.training else 0.0
        return ops.rms_norm_fn(
            x, self.weight, self.bias, residual=residual, eps=self.eps, dropout_p=dropout_p,
            prenorm=prenorm, residual_in_fp32=residual_in_fp32,
        )


def _layer_norm_fwd(x, weight, bias, eps, residual=None, *rest, is_rms_norm=False, **others):
    """The forward kernel's launcher, for the callers that only want its first result.

    x: (rows, columns). Returns (y,): the other results are for the backward pass. Of the other
    arguments only None, False and 0 are accepted.
    """
    if any(isinstance(value, torch.Tensor) or value for value in (residual, *rest, *others.values())):
        raise NotImplementedError(
            "_layer_norm_fwd: expected x, weight, bias, eps and is_rms_norm only, got more; "
            "call layer_norm_fn or rms_norm_fn"
        )
    norm = ops.rms_norm_fn if is_rms_norm else ops.layer_norm_fn
    with torch.no_grad():  # called inside autograd functions
        return (norm(x, weight, bias, eps=eps),)
