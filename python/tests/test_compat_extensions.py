"""The shims that are more than a name: extension modules' calling conventions, and the norms' modules.

Where a shim only passes its arguments on, its result has the bits of the operation. Otherwise float32
sums of 64 terms in another order: 64 * 2^-24 = 4e-6 of the largest value, and some roundings: 1e-5.
"""

import importlib

import pytest

import adder.compat
from adder import ops

try:
    import torch
except ImportError:
    torch = None

pytestmark = pytest.mark.skipif(torch is None, reason="wants PyTorch")
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def shims():
    torch.manual_seed(0)
    with adder.compat.install():
        yield


def shim(name):
    return importlib.import_module(name)


def assert_close(got, expected, tolerance=TOLERANCE):
    assert got.shape == expected.shape and got.dtype == expected.dtype
    assert (got - expected).abs().max() <= tolerance * expected.abs().max()  # false for NaN


def scan_inputs(seqlen, dtype="float32", groups=2):
    batch, dim, dstate, dtype = 2, 6, 5, getattr(torch, dtype)
    u, delta, z = (torch.randn(batch, dim, seqlen).to(dtype) for _ in range(3))
    B, C = (torch.randn(batch, groups, dstate, seqlen).to(dtype) for _ in range(2))
    return u, delta, -torch.rand(dim, dstate), B, C, torch.randn(dim), z, torch.randn(dim)


@pytest.mark.parametrize("seqlen", [1, 7, 2048, 2049])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_selective_scan_cuda(seqlen, dtype):
    u, delta, A, B, C, D, z, bias = scan_inputs(seqlen, dtype)
    expected, last_state = ops.selective_scan_fn(
        u, delta, A, B, C, D, delta_bias=bias, delta_softplus=True, return_last_state=True
    )
    out, x = shim("selective_scan_cuda").fwd(u, delta, A, B, C, D, None, bias, True)
    assert torch.equal(out, expected)
    assert x.shape == (2, 6, -(-seqlen // 2048), 10) and x.dtype == torch.float32
    assert torch.equal(x[:, :, -1, 1::2], last_state)
    out, x, out_z = shim("selective_scan_cuda").fwd(u, delta, A, B, C, D, z, bias, True)
    assert torch.equal(out, expected)
    assert torch.equal(out_z, ops.selective_scan_fn(u, delta, A, B, C, D, z, bias, True))


def test_selective_scan_cuda_complex():
    u, delta, A, B, C, *_ = scan_inputs(9)
    A = torch.complex(A, torch.randn_like(A))
    B, C = (torch.cat([each, each], dim=-1) for each in (B, C))
    out, x = shim("selective_scan_cuda").fwd(u, delta, A, B, C, None, None, None, False)
    expected, last_state = ops.selective_scan_fn(u, delta, A, B, C, return_last_state=True)
    assert torch.equal(out, expected)
    assert x.dtype == torch.complex64 and torch.equal(x[:, :, -1, 1::2], last_state)


def test_the_extensions_of_vmamba():
    u, delta, A, B, C, D, _, bias = scan_inputs(9, "bfloat16")
    expected = ops.selective_scan_fn(u, delta, A, B, C, D, None, bias, True)
    assert torch.equal(shim("selective_scan_cuda_core").fwd(u, delta, A, B, C, D, bias, True, 1)[0], expected)
    oflex = shim("selective_scan_cuda_oflex")
    assert torch.equal(oflex.fwd(u, delta, A, B, C, D, bias, True, 1, False)[0], expected)
    out = oflex.fwd(u, delta, A, B, C, D, bias, True, 1, True)[0]
    assert out.dtype == torch.float32 and torch.equal(out.to(torch.bfloat16), expected)


def test_one_delta_for_a_group_of_channels():
    u, delta, A, B, C, D, _, bias = scan_inputs(9)
    delta, bias = delta[:, :3], bias[:3]
    expected = ops.selective_scan_fn(
        u, delta.repeat_interleave(2, dim=1), A, B, C, D, None, bias.repeat_interleave(2), True
    )
    oflex = shim("selective_scan_cuda_oflex")
    assert torch.equal(oflex.fwd(u, delta, A, B, C, D, bias, True, 1, True)[0], expected)
    with pytest.raises(ValueError, match="delta: expected a number of channels that divides u's 6, got 4"):
        oflex.fwd(u, u[:, :4], A, B, C, D, None, True, 1, True)


@pytest.mark.parametrize("name", ["selective_scan_cuda", "selective_scan_cuda_core", "selective_scan_cuda_oflex"])
def test_no_backward(name):
    with pytest.raises(NotImplementedError, match=rf"{name}\.bwd: Adder has no backward pass"):
        shim(name).bwd()


def test_inside_an_autograd_function():
    """As VMamba, Vision Mamba and others wrap the extension."""
    core = shim("selective_scan_cuda_core")

    class Scan(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *arguments):
            out, x, *rest = core.fwd(*arguments)
            ctx.save_for_backward(x)
            return out

        @staticmethod
        def backward(ctx, dout):
            return core.bwd(dout)

    u, delta, A, B, C, D, _, bias = scan_inputs(9)
    out = Scan.apply(u.requires_grad_(), delta, A, B, C, D, bias, True, 1)
    with torch.no_grad():
        assert torch.equal(out, ops.selective_scan_fn(u, delta, A, B, C, D, None, bias, True))
    with pytest.raises(NotImplementedError, match="no backward pass"):
        out.sum().backward()


def test_every_version_of_causal_conv1d_fwd():
    cuda = shim("causal_conv1d_cuda")
    x, weight, bias = torch.randn(2, 6, 9), torch.randn(6, 4), torch.randn(6)
    seq_idx = torch.tensor([[0] * 4 + [1] * 5] * 2, dtype=torch.int32)
    initial = torch.randn(2, 6, 3)
    plain = ops.causal_conv1d_fn(x, weight, bias, activation="silu")
    assert torch.equal(cuda.causal_conv1d_fwd(x, weight, bias, True), plain)
    assert torch.equal(
        cuda.causal_conv1d_fwd(x, weight, bias, seq_idx, False),
        ops.causal_conv1d_fn(x, weight, bias, seq_idx=seq_idx),
    )
    expected, final = ops.causal_conv1d_fn(
        x, weight, bias, initial_states=initial, return_final_states=True, activation="silu"
    )
    for has_out in (False, True):
        out, states = torch.zeros_like(x), torch.zeros_like(initial)
        outputs = (out, states) if has_out else (states,)
        result = cuda.causal_conv1d_fwd(x, weight, bias, None, initial, *outputs, True)
        assert torch.equal(out if has_out else result, expected)
        assert (result is None) == has_out
        assert torch.equal(states, final)
    with pytest.raises(TypeError, match="expected 4, 5, 7 or 8 arguments, got 6"):
        cuda.causal_conv1d_fwd(x, weight, bias, None, None, True)


@pytest.mark.parametrize("version", ["1.0", "1.4", "1.5", "1.5.1"])
def test_every_version_of_causal_conv1d_update(version):
    x, state, weight, bias = torch.randn(2, 6), torch.randn(2, 6, 4), torch.randn(6, 4), torch.randn(6)
    expected_state = state.clone()
    expected = ops.causal_conv1d_update(x, expected_state, weight, bias, activation="silu")
    out = torch.zeros_like(x)
    rest = {"1.0": (True,), "1.4": (True, None), "1.5": (True, None, None), "1.5.1": (out, True, None, None)}
    result = shim("causal_conv1d_cuda").causal_conv1d_update(x, state, weight, bias, *rest[version])
    assert torch.equal(out if result is None else result, expected)
    assert torch.equal(state, expected_state)


def gated_reference(x, weight, bias, z, eps, group_size, norm_before_gate, is_rms_norm):
    """layernorm_gated's formula in float64."""
    gate = 1.0 if z is None else torch.nn.functional.silu(z.double())
    y = x.double() if norm_before_gate else x.double() * gate
    y = y.unflatten(-1, (-1, group_size or x.shape[-1]))
    if not is_rms_norm:
        y = y - y.mean(-1, keepdim=True)
    y = (y / (y.pow(2).mean(-1, keepdim=True) + eps).sqrt()).flatten(-2) * weight.double()
    y = y if bias is None else y + bias.double()
    return (y * gate if norm_before_gate else y).to(x.dtype)


@pytest.mark.parametrize("is_rms_norm", [False, True])
@pytest.mark.parametrize("has_z", [False, True])
@pytest.mark.parametrize("group_size", [None, 16])
@pytest.mark.parametrize("norm_before_gate", [False, True])
def test_the_gated_norms(is_rms_norm, has_z, group_size, norm_before_gate):
    gated = shim("mamba_ssm.ops.triton.layernorm_gated")
    x = torch.randn(3, 5, 64)
    z = torch.randn_like(x) if has_z else None
    module = (gated.RMSNorm if is_rms_norm else gated.LayerNorm)(
        64, eps=1e-3, group_size=group_size, norm_before_gate=norm_before_gate
    )
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(64))
        options = {"eps": 1e-3, "group_size": group_size, "norm_before_gate": norm_before_gate}
        options["is_rms_norm"] = is_rms_norm
        expected = gated_reference(x, module.weight, module.bias, z, **options)
        assert_close(module(x, z), expected)
        assert_close(gated.layernorm_fn(x, module.weight, module.bias, z, **options), expected)
    assert sorted(module.state_dict()) == (["weight"] if is_rms_norm else ["bias", "weight"])


@pytest.mark.parametrize("name", ["layer_norm", "layernorm"])
def test_the_norms_with_a_residual(name):
    module = shim(f"mamba_ssm.ops.triton.{name}").RMSNorm(64, eps=1e-3)
    x, residual = torch.randn(3, 64), torch.randn(3, 64)
    with torch.no_grad():
        module.weight.copy_(torch.randn(64))
        got, total = module(x, residual, prenorm=True, residual_in_fp32=True)
    assert_close(total, x + residual)
    assert_close(got, gated_reference(x + residual, module.weight.detach(), None, None, 1e-3, None, True, True))


def test_layer_norm_fwd():
    forward = shim("mamba_ssm.ops.triton.layer_norm")._layer_norm_fwd
    x, weight = torch.randn(3, 64), torch.randn(64)
    got = forward(x, weight, None, 1e-3, None, residual_dtype=None, is_rms_norm=True)[0]
    assert_close(got, gated_reference(x, weight, None, None, 1e-3, None, True, True))
    with pytest.raises(NotImplementedError, match="_layer_norm_fwd: expected x, weight"):
        forward(x, weight, None, 1e-3, residual=x)


def test_mamba3_says_that_it_is_missing():
    from adder.compat import _mamba3

    with pytest.raises(NotImplementedError, match="mamba3_siso_combined: Adder does not have Mamba-3"):
        _mamba3.mamba3_siso_combined()
