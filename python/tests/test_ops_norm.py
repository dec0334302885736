"""The norms against NumPy in float64."""
import numpy as np
import ops_reference as reference
import pytest
from ops_inputs import KINDS, LAYOUTS, Random, lay_out, rounded
from ops_reference import to_numpy

from adder import ops


def close(got, want, kind="float32"):
    """float32: 96 ulp of max(|want|, 1), the bar of dot products and norms (CONFORMANCE.md section 3);
    16 bits: that of their outputs."""
    if kind.endswith("16"):
        return reference.close(got, want)
    assert got.shape == want.shape
    limit = 96 * np.finfo("f").eps * np.maximum(np.abs(want), 1)
    error = np.abs(to_numpy(got) - want)
    assert (error <= limit).all(), (error.max(), (error / limit).max())


def norm_inputs(shape=(3, 7, 48), seed=0):
    r = Random(seed)
    return dict(x=r(*shape), weight=r(shape[-1]), bias=r(shape[-1]), z=r(*shape))


@pytest.mark.parametrize("norm_before_gate", [False, True])
@pytest.mark.parametrize("without", [[], ["bias"], ["z"], ["bias", "z"]])
@pytest.mark.parametrize("group_size", [None, 16, 1, 48])
def test_gated(norm_before_gate, without, group_size):
    values = {**norm_inputs(), **{name: None for name in without}}
    arrays, exact = rounded(values, "float32")
    options = dict(group_size=group_size, norm_before_gate=norm_before_gate, eps=1e-5)
    close(ops.rmsnorm_fn(**arrays, **options), reference.norm(**exact, **options))
    close(ops.layernorm_fn(**arrays, **options), reference.norm(**exact, **options, rms=False))
    np.testing.assert_array_equal(ops.layernorm_fn(**arrays, **options, is_rms_norm=True),
                                  ops.rmsnorm_fn(**arrays, **options))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(5,), (2, 130), (3, 2, 4, 16), (300, 70)])
def test_dtypes_and_shapes(kind, shape):
    arrays, exact = rounded(norm_inputs(shape), kind)
    got = ops.rmsnorm_fn(**arrays)
    assert str(got.dtype) == kind and type(got) is type(arrays["x"])
    close(got, reference.norm(**exact), kind)
    del arrays["z"], exact["z"]
    close(ops.layer_norm_fn(**arrays), reference.norm(**exact, rms=False), kind)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    arrays, exact = rounded(norm_inputs(), "float32")
    arrays = {k: lay_out(v, layout) for k, v in arrays.items()}
    close(ops.rmsnorm_fn(**arrays), reference.norm(**exact))


@pytest.mark.parametrize("is_rms_norm", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_residual_stream(is_rms_norm, with_bias):
    r = Random(1)
    values = dict(x=r(3, 5, 40), residual=r(3, 5, 40), weight=r(40), bias=r(40) if with_bias else None)
    arrays, exact = rounded(values, "float32")
    v = exact["x"] + exact["residual"]
    want = reference.norm(v, exact["weight"], exact["bias"], rms=is_rms_norm)
    out, residual = ops.layer_norm_fn(**arrays, prenorm=True, is_rms_norm=is_rms_norm)
    close(out, want)
    close(residual, v)
    np.testing.assert_array_equal(ops.layer_norm_fn(**arrays, is_rms_norm=is_rms_norm), out)
    if is_rms_norm:
        np.testing.assert_array_equal(ops.rms_norm_fn(**arrays), out)
    assert len(ops.layer_norm_fn(**arrays, prenorm=True, return_dropout_mask=True)) == 4


def test_two_outputs_and_scaled_rows():
    r = Random(2)
    arrays, exact = rounded(dict(x=r(3, 5, 40), x1=r(3, 5, 40), weight=r(40), bias=r(40), weight1=r(40),
                                 bias1=r(40)), "float32")
    out, out1, residual = ops.layer_norm_fn(**arrays, prenorm=True)
    v = exact["x"] + exact["x1"]
    close(out, reference.norm(v, exact["weight"], exact["bias"], rms=False))
    close(out1, reference.norm(v, exact["weight1"], exact["bias1"], rms=False))
    close(residual, v)
    scale = r(3, 5).astype("f")
    got = ops.rms_norm_fn(arrays["x"], arrays["weight"], None, rowscale=scale)
    close(got, reference.norm(exact["x"] * scale[..., None], exact["weight"]))


@pytest.mark.parametrize("residual, in_fp32, want", [(None, False, "float16"), (None, True, "float32"),
                                                     ("float32", False, "float32"),
                                                     ("float16", True, "float16")])
def test_dtype_of_the_residual(residual, in_fp32, want):
    x, weight = np.ones((2, 8), "float16"), np.ones(8, "f")
    residual = None if residual is None else np.ones((2, 8), residual)
    out, new = ops.rms_norm_fn(x, weight, None, residual=residual, prenorm=True, residual_in_fp32=in_fp32)
    assert out.dtype == "float16" and new.dtype == want


def test_zero_sizes():
    for shape in [(0, 8), (3, 0), (2, 0, 8)]:
        assert ops.rmsnorm_fn(np.zeros(shape, "f"), np.zeros(shape[-1], "f"), None).shape == shape


@pytest.mark.parametrize("call, error, message", [
    (lambda x, w: ops.rmsnorm_fn(x, w, None, group_size=5), ValueError,
     "rmsnorm_fn: group_size: expected a divisor of 8, got 5"),
    (lambda x, w: ops.rmsnorm_fn(x, w, None, group_size=0), ValueError, "group_size: expected at least 1"),
    (lambda x, w: ops.rmsnorm_fn(x, w[:7], None), ValueError, r"weight: expected shape \(8,\), got \(7,\)"),
    (lambda x, w: ops.rmsnorm_fn(x, w, None, z=x[:1]), ValueError, r"z: expected shape \(2, 8\), got \(1, 8\)"),
    (lambda x, w: ops.rmsnorm_fn(x, w, None, eps=-1.0), ValueError, "eps: expected a finite number >= 0"),
    (lambda x, w: ops.rmsnorm_fn(x, None, None), TypeError, "weight: expected .*, got None"),
    (lambda x, w: ops.layer_norm_fn(x, w, None, residual=x[:, :4]), ValueError, r"residual: expected shape"),
    (lambda x, w: ops.rms_norm_fn(x, w, None, dropout_p=0.1), NotImplementedError, "dropout_p: expected 0"),
    (lambda x, w: ops.rms_norm_fn(x, w, None, x1=x, rowscale=x[:, 0]), ValueError, "rowscale: expected None"),
])
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call(np.ones((2, 8), "f"), np.ones(8, "f"))
