"""mamba_inner_fn and mamba_split_conv1d_scan_combined against their parts in float64."""
import numpy as np
import ops_reference as reference
import pytest
from ops_inputs import KINDS, LAYOUTS, Random, lay_out, rounded
from ops_reference import close

from adder import ops


def inner_inputs(batch=2, dim=12, seqlen=19, dt_rank=3, dstate=4, width=4, d_model=7, is_complex=False):
    r = Random(0)
    state = dstate * (2 if is_complex else 1)
    A = r.decay(dim, dstate)
    return dict(xz=r(batch, 2 * dim, seqlen), conv1d_weight=r(dim, 1, width), conv1d_bias=r(dim),
                x_proj_weight=r(dt_rank + 2 * state, dim) / dim**0.5,  # so that sums are of order 1
                delta_proj_weight=r(dim, dt_rank) / dt_rank**0.5,
                out_proj_weight=r(d_model, dim) / dim**0.5, out_proj_bias=r(d_model),
                A=A + 1j * r(dim, dstate) if is_complex else A, D=r(dim), delta_bias=r(dim))


def check_inner(values, kind="float32"):
    arrays, exact = rounded(values, kind)
    got = ops.mamba_inner_fn(**arrays)
    assert str(got.dtype) == kind and type(got) is type(arrays["xz"])
    close(got, reference.mamba_inner(**exact))


@pytest.mark.parametrize("kind", KINDS)
def test_inner_dtypes(kind):
    check_inner(inner_inputs(), kind)


@pytest.mark.parametrize("is_complex", [False, True])
def test_inner_biases_and_norms(is_complex):
    r = Random(1)
    state = 8 if is_complex else 4
    check_inner({**inner_inputs(is_complex=is_complex), "B_proj_bias": r(state), "C_proj_bias": r(state),
                 "b_rms_weight": r(state), "c_rms_weight": r(state), "dt_rms_weight": r(12)})


@pytest.mark.parametrize("given", ["B", "C", "BC"])
@pytest.mark.parametrize("shape", [(12, 4), (2, 4, 19), (2, 3, 4, 19)])
def test_inner_B_and_C_given(given, shape):
    values = inner_inputs()
    for name in given:
        values[name] = Random(2)(*shape)
    values["x_proj_weight"] = values["x_proj_weight"][:3 + 4 * (2 - len(given))]
    check_inner(values)


def test_inner_shapes_and_layouts():
    check_inner(inner_inputs(1, 200, 130, 5, 16, 3, 150))
    check_inner(inner_inputs(batch=0))
    check_inner(inner_inputs(seqlen=0))
    for without in ("conv1d_bias", "out_proj_bias", "D", "delta_bias"):
        check_inner({**inner_inputs(), without: None})
    for layout in LAYOUTS:
        arrays, exact = rounded(inner_inputs(), "float32")
        got = ops.mamba_inner_fn(**{k: lay_out(v, layout) for k, v in arrays.items()})
        close(got, reference.mamba_inner(**exact))


@pytest.mark.parametrize("change, message", [
    (dict(x_proj_weight=np.zeros((10, 12), "f")), r"x_proj_weight: expected shape \(11, 12\), got \(10, 12\)"),
    (dict(xz=np.zeros((2, 23, 19), "f")), r"xz: expected shape \(2, 24, 19\)"),
    (dict(out_proj_weight=np.zeros((7, 11), "f")), r"out_proj_weight: expected shape \(7, 12\)"),
    (dict(conv1d_weight=np.zeros((12, 4), "f")), r"conv1d_weight: expected 3 axes"),
])
def test_inner_bad_values(change, message):
    arrays, _ = rounded(inner_inputs(), "float32")
    with pytest.raises(ValueError, match="mamba_inner_fn: " + message):
        ops.mamba_inner_fn(**{**arrays, **change})


def split_inputs(batch=2, seqlen=37, nheads=4, headdim=6, ngroups=2, dstate=5, width=4, d_mlp=0, d_model=9):
    r, dim = Random(3), nheads * headdim
    channels = dim + 2 * ngroups * dstate
    return dict(zxbcdt=r(batch, seqlen, 2 * d_mlp + dim + channels + nheads), conv1d_weight=r(channels, width),
                conv1d_bias=r(channels), dt_bias=r(nheads), A=r.decay(nheads), D=r(nheads, headdim),
                initial_states=r(batch, nheads, headdim, dstate), rmsnorm_weight=r(dim),
                outproj_weight=r(d_model, d_mlp + dim) / dim**0.5, outproj_bias=r(d_model))


def check_split(values, kind="float32", **options):
    options.setdefault("ngroups", 2)
    arrays, exact = rounded(values, kind)
    want, want_final = reference.mamba_split(**exact, **options)
    got, final = ops.mamba_split_conv1d_scan_combined(**arrays, chunk_size=16, return_final_states=True,
                                                      **options)
    assert str(got.dtype) == kind and type(got) is type(arrays["zxbcdt"])
    close(got, want)
    close(final, want_final, "float32")


@pytest.mark.parametrize("kind", KINDS)
def test_split_dtypes(kind):
    check_split(split_inputs(), kind)


@pytest.mark.parametrize("d_mlp", [0, 5])
@pytest.mark.parametrize("without", [[], ["rmsnorm_weight"], ["outproj_weight", "outproj_bias"],
                                     ["rmsnorm_weight", "outproj_weight", "outproj_bias"],
                                     ["initial_states", "conv1d_bias", "outproj_bias"]])
def test_split_parts(d_mlp, without):
    values = {**split_inputs(d_mlp=d_mlp), **{name: None for name in without}}
    for norm_before_gate in (False, True):
        check_split(values, norm_before_gate=norm_before_gate)
    check_split(values, activation=None, dt_limit=(0.01, 0.5), rmsnorm_eps=1e-5)


def test_split_packed_sequences_and_shapes():
    check_split(split_inputs(), seq_idx=np.array([[0] * 10 + [1] * 27, [0] * 20 + [4] * 10 + [-1] * 7]))
    check_split({**split_inputs(), "D": Random(4)(4)}, headdim=6)
    check_split(split_inputs(1, 150, 8, 32, 1, 64, 2, 0, 200), ngroups=1)
    check_split(split_inputs(seqlen=0))
    check_split(split_inputs(batch=0))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_split_layouts(layout):
    arrays, exact = rounded(split_inputs(d_mlp=3), "float32")
    laid_out = {k: lay_out(v, layout) for k, v in arrays.items()}
    got = ops.mamba_split_conv1d_scan_combined(**laid_out, chunk_size=16, ngroups=2)
    close(got, reference.mamba_split(**exact, ngroups=2)[0])


@pytest.mark.parametrize("change, message", [
    (dict(ngroups=3), "ngroups: expected a divisor of nheads = 4, got 3"),
    (dict(D=np.zeros(4, "f")), "headdim: expected 1 to 44, as D has 1 axis, got 0"),
    (dict(zxbcdt=np.zeros((2, 37, 71), "f")), "zxbcdt: expected .* = 72 columns and an even number more, got 71"),
    (dict(outproj_weight=None), "outproj_bias: expected None without outproj_weight"),
    (dict(rmsnorm_weight=np.zeros(23, "f")), r"rmsnorm_weight: expected shape \(24,\)"),
    (dict(activation="gelu"), "activation: expected None, 'silu' or 'swish', got 'gelu'"),
    (dict(chunk_size=0), "chunk_size: expected at least 1"),
])
def test_split_bad_values(change, message):
    arrays, _ = rounded(split_inputs(), "float32")
    with pytest.raises(ValueError, match="mamba_split_conv1d_scan_combined: " + message):
        ops.mamba_split_conv1d_scan_combined(**{**arrays, "chunk_size": 16, "ngroups": 2, **change})


def test_split_accepts_state_dtype():
    arrays, _ = rounded(split_inputs(), "float32")
    options = dict(chunk_size=16, ngroups=2)
    want = ops.mamba_split_conv1d_scan_combined(**arrays, **options)
    got = ops.mamba_split_conv1d_scan_combined(**arrays, **options, state_dtype=np.float32)
    np.testing.assert_array_equal(got, want)
    with pytest.raises(TypeError, match="mamba_split_conv1d_scan_combined: state_dtype: expected None or one of"):
        ops.mamba_split_conv1d_scan_combined(**arrays, **options, state_dtype="int32")
