"""mamba_ssm.Mamba and Mamba2 on the shims, against the PyTorch code they have for missing kernels.

Tolerance: as in test_ssd_reference.py, and the projections' sums of 64 and 128 terms on top.
"""

import pytest
import torch

import mamba_ssm.modules.mamba2
import mamba_ssm.modules.mamba_simple
from mamba_ssm.ops.selective_scan_interface import selective_scan_ref
from mamba_ssm.utils.generation import InferenceParams

TOLERANCE = 1e-4
MODULES = {
    "Mamba": (mamba_ssm.modules.mamba_simple, {"d_state": 8}, "use_fast_path"),
    "Mamba2": (mamba_ssm.modules.mamba2, {"d_state": 16, "headdim": 16, "ngroups": 1}, "use_mem_eff_path"),
}


def assert_close(got, expected):
    assert got.shape == expected.shape
    assert (got - expected).abs().max() <= TOLERANCE * expected.abs().max()  # false for NaN


def make(name, **options):
    torch.manual_seed(0)
    file, sizes, _ = MODULES[name]
    return getattr(file, name)(64, layer_idx=0, **sizes, **options), torch.randn(2, 37, 64)


def step_through(module, u):
    """The whole of u one position after the other, from an empty state."""
    conv_state, ssm_state = module.allocate_inference_cache(u.shape[0], u.shape[1])
    steps = [module.step(u[:, t : t + 1], conv_state, ssm_state)[0] for t in range(u.shape[1])]
    return torch.cat(steps, dim=1), conv_state, ssm_state


@pytest.fixture()
def expected(monkeypatch):
    """name -> stepping through the module with neither package: PyTorch only."""

    def compute(name):
        file = MODULES[name][0]
        module, u = make(name)
        with monkeypatch.context() as patch:
            patch.setattr(file, "causal_conv1d_update", None)
            patch.setattr(file, "selective_state_update", None)
            return module, u, step_through(module, u)

    return compute


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("fused", [True, False])
def test_prefill(name, fused, expected):
    module, u, (y, _, _) = expected(name)
    setattr(module, MODULES[name][2], fused)
    assert_close(module(u), y)


@pytest.mark.parametrize("name", MODULES)
def test_steps(name, expected):
    module, u, reference = expected(name)
    for got, its_reference in zip(step_through(module, u), reference):
        assert_close(got, its_reference)


@pytest.mark.parametrize("name", MODULES)
def test_prefill_then_steps(name, expected):
    module, u, (y, _, _) = expected(name)
    params = InferenceParams(max_seqlen=u.shape[1], max_batch_size=u.shape[0])
    parts = [module(u[:, :30], inference_params=params)]
    for t in range(30, u.shape[1]):
        params.seqlen_offset = t
        parts.append(module(u[:, t : t + 1], inference_params=params))
    assert_close(torch.cat(parts, dim=1), y)


def test_mamba_with_the_reference_scan(monkeypatch):
    module, u = make("Mamba", use_fast_path=False)
    got = module(u)
    monkeypatch.setattr(MODULES["Mamba"][0], "selective_scan_fn", selective_scan_ref)
    monkeypatch.setattr(MODULES["Mamba"][0], "causal_conv1d_fn", None)
    assert_close(got, module(u))
