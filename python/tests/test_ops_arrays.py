"""What the operations accept: NumPy, PyTorch, DLPack; results' kinds; threads."""
import subprocess
import sys
import threading

import numpy as np
import pytest
from ops_inputs import Random, rounded
from ops_reference import to_numpy
from test_ops_conv import conv_inputs
from test_ops_fused import inner_inputs, split_inputs
from test_ops_norm import norm_inputs
from test_ops_scan import scan_inputs, tied_inputs, update_inputs
from test_ops_ssd import ssd_inputs

from adder import ops

# Every operation with operands for it and the options it needs.
CALLS = {
    "selective_scan_fn": (scan_inputs, dict(delta_softplus=True, return_last_state=True)),
    "selective_state_update": (update_inputs, dict(dt_softplus=True)),
    "mamba_chunk_scan_combined": (ssd_inputs, dict(chunk_size=64, dt_softplus=True, return_final_states=True)),
    "causal_conv1d_fn": (conv_inputs, dict(activation="silu", return_final_states=True)),
    "causal_conv1d_update": (lambda: dict(x=Random()(3, 8), conv_state=Random(1)(3, 8, 3),
                                          weight=Random(2)(8, 4)), dict(activation="silu")),
    "rmsnorm_fn": (norm_inputs, {}),
    "layer_norm_fn": (lambda: dict(x=Random()(3, 8), weight=Random(1)(8), bias=None, residual=Random(2)(3, 8)),
                      dict(prenorm=True)),
    "mamba_inner_fn": (inner_inputs, {}),
    "mamba_split_conv1d_scan_combined": (split_inputs, dict(chunk_size=64, ngroups=2, return_final_states=True)),
}


def call(name, arrays):
    """All results of an operation, the operands that it has changed among them."""
    result = getattr(ops, name)(**arrays, **CALLS[name][1])
    changed = [arrays[k] for k in ("state", "conv_state") if k in arrays]
    return [*(result if isinstance(result, tuple) else [result]), *changed]


def operands(name, kind="float32"):
    return rounded(CALLS[name][0](), kind)[0]


@pytest.mark.parametrize("name", CALLS)
def test_tensors_equal_arrays(name):
    torch = pytest.importorskip("torch")
    for got, want in zip(call(name, operands(name, "torch.float32")), call(name, operands(name))):
        assert isinstance(got, torch.Tensor) and isinstance(want, np.ndarray)
        np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("name", CALLS)
def test_strided_tensors(name):
    torch = pytest.importorskip("torch")
    tensors = operands(name, "torch.float32")
    for key, value in tensors.items():
        if value is not None:
            wide = torch.full(tuple(2 * n for n in value.shape), float("nan"))
            view = wide[tuple(slice(None, None, 2) for _ in value.shape)]
            view.copy_(value)
            tensors[key] = view
    for got, want in zip(call(name, tensors), call(name, operands(name))):
        np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("name", CALLS)
def test_a_gradient_is_refused(name):
    torch = pytest.importorskip("torch")
    for key in operands(name):
        tensors = operands(name, "torch.float32")
        if tensors[key] is None:
            continue
        tensors[key].requires_grad_()
        with pytest.raises(RuntimeError, match=f"{name}: {key} requires a gradient, but adder has no "
                           r"backward pass: call it under torch.no_grad\(\), or with " + key + r".detach\(\)"):
            call(name, tensors)
        with torch.no_grad():
            call(name, tensors)
        with torch.inference_mode():
            call(name, operands(name, "torch.float32"))


def test_other_devices_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="rmsnorm_fn: x: expected a CPU (or CUDA )?tensor, got one on meta"):
        ops.rmsnorm_fn(torch.zeros(2, 8, device="meta"), torch.ones(8), None)


def test_tensors_with_unusual_memory():
    torch = pytest.importorskip("torch")
    u = torch.randn(1, 2, 3)
    A = torch.complex(-torch.rand(2, 4), torch.randn(2, 4))
    B = torch.randn(2, 4, dtype=torch.complex64)
    want = ops.selective_scan_fn(u, u.abs(), A, B.conj().resolve_conj(), B)
    got = ops.selective_scan_fn(u, u.abs(), A, B.conj(), B)  # conjugate by a flag only
    np.testing.assert_array_equal(got.numpy(), want.numpy())
    with pytest.raises(TypeError, match="x: expected .*, got torch.uint8"):
        ops.rmsnorm_fn(torch.zeros(2, 8, dtype=torch.uint8), torch.ones(8), None)


def test_operands_may_be_mixed():
    torch = pytest.importorskip("torch")
    arrays = operands("rmsnorm_fn")
    want = ops.rmsnorm_fn(**arrays)
    tensors = operands("rmsnorm_fn", "torch.float32")
    assert isinstance(ops.rmsnorm_fn(**{**arrays, "weight": tensors["weight"]}), np.ndarray)
    got = ops.rmsnorm_fn(**{**arrays, "x": tensors["x"]})
    assert isinstance(got, torch.Tensor)
    np.testing.assert_array_equal(got.numpy(), want)
    half = ops.rmsnorm_fn(**{**arrays, "x": arrays["x"].astype("float16")})
    assert half.dtype == np.float16


class Exporter:
    """An array of a library that is known by DLPack only."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


@pytest.mark.parametrize("name", [n for n in CALLS if "update" not in n])
def test_dlpack(name):
    arrays = operands(name)
    exported = {k: None if v is None else Exporter(v) for k, v in arrays.items()}
    for got, want in zip(call(name, exported), call(name, arrays)):
        assert isinstance(got, np.ndarray) and got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_what_is_written_is_no_export():
    arrays = operands("selective_state_update")
    arrays["state"] = Exporter(arrays["state"])
    with pytest.raises(TypeError, match="state: expected a NumPy array or a PyTorch tensor, got Exporter"):
        ops.selective_state_update(**arrays)


def test_bfloat16_arrays():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = Random()(2, 8).astype("f").astype(bfloat16)
    got = ops.rmsnorm_fn(x, np.ones(8, "f"), None)
    assert got.dtype == bfloat16
    want = ops.rmsnorm_fn(x.astype("f"), np.ones(8, "f"), None).astype(bfloat16)
    np.testing.assert_array_equal(got.astype("f"), want.astype("f"))  # both rounded to nearest even


def test_torch_is_never_imported():
    code = ("import sys, numpy as np; from adder import ops; "
            "ops.rmsnorm_fn(np.ones((2, 8), 'f'), np.ones(8, 'f'), None); assert 'torch' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", CALLS)
def test_many_threads_at_once(name):
    want = call(name, operands(name))
    failures = []

    def work():
        try:
            for _ in range(20):
                for got, expected in zip(call(name, operands(name)), want):
                    np.testing.assert_array_equal(got, expected)
        except BaseException as e:  # a thread's exceptions are nobody's otherwise
            failures.append(e)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_number_of_threads_changes_nothing():
    default = ops.get_num_threads()
    assert default >= 1
    values, _ = rounded(scan_inputs(2, 256, 300, 16, 1), "float32")
    try:
        results = []
        for n in (1, 2, 5):
            ops.set_num_threads(n)
            assert ops.get_num_threads() == n
            results.append(ops.selective_scan_fn(**values))
        np.testing.assert_array_equal(results[0], results[1])
        np.testing.assert_array_equal(results[0], results[2])
        with pytest.raises(ValueError, match="n: expected at least 0, got -1"):
            ops.set_num_threads(-1)
    finally:
        ops.set_num_threads(0)
    assert ops.get_num_threads() == default


def test_a_fork_can_compute():
    code = ("import os, numpy as np; from adder import ops\n"
            "ops.set_num_threads(2)\n"
            "r = np.random.default_rng(0).standard_normal\n"
            "u, A, B = r((1, 256, 512)), -np.ones((256, 16)), r((1, 16, 512))\n"
            "want = ops.selective_scan_fn(u, abs(u), A, B, B)\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    same = (ops.selective_scan_fn(u, abs(u), A, B, B) == want).all()\n"
            "    os._exit(0 if same and ops.get_num_threads() == 2 else 1)\n"
            "assert os.waitpid(child, 0)[1] == 0")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_tied_heads_of_tensors():
    pytest.importorskip("torch")
    arrays, tensors = tied_inputs(), tied_inputs(kind="torch.float32")
    want = ops.selective_state_update(**arrays, dt_softplus=True)
    got = ops.selective_state_update(**tensors, dt_softplus=True)
    np.testing.assert_array_equal(to_numpy(got), to_numpy(want))
    np.testing.assert_array_equal(tensors["state"].numpy(), arrays["state"])


