"""Adder's Mamba-2 scans against mamba-ssm's reference functions.

mamba-ssm's own test_ssd.py reaches for single Triton kernels, so it cannot run on the shims. Tolerance:
float32 sums of up to 256 terms, and exponentials of differences of sums of up to 256 terms of
magnitude 1: 256 * 2^-24 = 1.5e-5 of the largest value each; five times that.
"""

import functools

import pytest
import torch

from mamba_ssm.modules.ssd_minimal import ssd_minimal_discrete
from mamba_ssm.ops.triton.layernorm_gated import rms_norm_ref
from mamba_ssm.ops.triton.ssd_combined import (
    mamba_chunk_scan_combined,
    mamba_split_conv1d_scan_combined,
    mamba_split_conv1d_scan_ref,
    ssd_chunk_scan_combined_ref,
)

TOLERANCE = 8e-5


def assert_close(got, expected):
    assert got.shape == expected.shape
    assert (got - expected).abs().max() <= TOLERANCE * expected.abs().max()  # false for NaN


def make_inputs(seqlen, nheads=8, headdim=16, ngroups=1, dstate=32):
    torch.manual_seed(seqlen + ngroups)
    x = torch.randn(2, seqlen, nheads, headdim)
    dt = torch.nn.functional.softplus(torch.randn(2, seqlen, nheads) - 4)
    A = -torch.exp(torch.rand(nheads))
    B = torch.randn(2, seqlen, ngroups, dstate)
    C = torch.randn(2, seqlen, ngroups, dstate)
    return x, dt, A, B, C


@pytest.mark.parametrize("chunk_size", [16, 64])
@pytest.mark.parametrize("has_initial_states", [False, True])
def test_minimal_discrete(chunk_size, has_initial_states):
    x, dt, A, B, C = make_inputs(256)
    initial = torch.randn(2, 8, 16, 32) if has_initial_states else None
    heads = [each.expand(-1, -1, 8, -1) for each in (B, C)]
    expected = ssd_minimal_discrete(
        x * dt.unsqueeze(-1), A * dt, *heads, chunk_size, None if initial is None else initial.unsqueeze(1)
    )
    got = mamba_chunk_scan_combined(
        x, dt, A, B, C, chunk_size, initial_states=initial, return_final_states=True
    )
    for each, its_reference in zip(got, expected):
        assert_close(each, its_reference)


@pytest.mark.parametrize("ngroups", [1, 2, 8])
@pytest.mark.parametrize("has_z", [False, True])
@pytest.mark.parametrize("D_has_hdim", [False, True])
def test_chunk_scan_combined_ref(ngroups, has_z, D_has_hdim):
    x, dt, A, B, C = make_inputs(256, ngroups=ngroups)
    D = torch.randn(8, 16) if D_has_hdim else torch.randn(8)
    options = {"D": D, "z": torch.randn_like(x) if has_z else None, "dt_bias": torch.rand(8) - 4, "dt_softplus": True}
    expected = ssd_chunk_scan_combined_ref(x, dt, A, B, C, 64, **options)
    assert_close(mamba_chunk_scan_combined(x, dt, A, B, C, 64, **options), expected)


@pytest.mark.parametrize("ngroups", [1, 2])
@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize("norm_before_gate", [False, True])
@pytest.mark.parametrize("dt_limit", [(0.0, float("inf")), (0.01, 0.05)])
def test_split_conv1d_scan_ref(ngroups, has_norm, norm_before_gate, dt_limit, monkeypatch):
    torch.manual_seed(0)
    nheads, headdim, dstate, seqlen = 8, 16, 32, 130
    dim = nheads * headdim
    conv_dim = dim + 2 * ngroups * dstate
    zxbcdt = torch.randn(2, seqlen, dim + conv_dim + nheads)
    weights = torch.randn(conv_dim, 4), torch.randn(conv_dim), torch.rand(nheads) - 4, -torch.rand(nheads) - 1
    options = {
        "D": torch.randn(nheads), "chunk_size": 64, "dt_limit": dt_limit, "headdim": headdim, "ngroups": ngroups,
        "rmsnorm_weight": torch.randn(dim) if has_norm else None, "norm_before_gate": norm_before_gate,
        "outproj_weight": torch.randn(24, dim) / dim**0.5, "outproj_bias": torch.randn(24),
    }
    # The kernel and Mamba2 normalise each group on its own; this reference does not.
    grouped = functools.partial(rms_norm_ref, group_size=dim // ngroups)
    monkeypatch.setitem(mamba_split_conv1d_scan_ref.__globals__, "rmsnorm_fn", grouped)
    expected = mamba_split_conv1d_scan_ref(zxbcdt, *weights, **options)
    assert_close(mamba_split_conv1d_scan_combined(zxbcdt, *weights, **options), expected)
