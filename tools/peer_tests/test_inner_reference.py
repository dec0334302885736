"""mamba_inner_fn against mamba-ssm's mamba_inner_ref with weights of a trained model's size.

mamba-ssm's own test draws all weights with variance 1, which makes outputs of 1e8 that cancel to 1e4: it
passes where function and reference share their bits, and says little about others. Tolerance: float32 sums
of 96 and 48 terms in another order, of which the scan's exponentials make some multiple: 1e-5 of the
largest value.
"""

import pytest
import torch

from mamba_ssm.ops.selective_scan_interface import mamba_inner_fn, mamba_inner_ref

TOLERANCE = 1e-5


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("is_variable_B", [False, True])
@pytest.mark.parametrize("is_variable_C", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_mamba_inner_ref(is_complex, is_variable_B, is_variable_C, has_bias):
    torch.manual_seed(0)
    dim, dstate, dt_rank, seqlen = 96, 8, 6, 130
    wtype = torch.complex64 if is_complex else torch.float32
    columns = dt_rank + (is_variable_B + is_variable_C) * dstate * (2 if is_complex else 1)
    xz = torch.randn(2, 2 * dim, seqlen)
    weights = (
        torch.randn(dim, 1, 4) / 2,
        torch.randn(dim) / 2,
        torch.randn(columns, dim) / dim**0.5,
        torch.randn(dim, dt_rank) / dt_rank**0.5,
        torch.randn(48, dim) / dim**0.5,
        torch.randn(48) if has_bias else None,
        -torch.rand(dim, dstate).to(wtype),
        None if is_variable_B else torch.randn(dim, dstate, dtype=wtype),
        None if is_variable_C else torch.randn(dim, dstate, dtype=wtype),
        torch.randn(dim),
    )
    options = {"delta_bias": torch.rand(dim) - 2, "delta_softplus": True}
    got, expected = mamba_inner_fn(xz, *weights, **options), mamba_inner_ref(xz, *weights, **options)
    assert got.shape == expected.shape
    assert (got - expected).abs().max() <= TOLERANCE * expected.abs().max()  # false for NaN
