"""Operands that lie, overlap, or are something else than they look like."""
import ctypes
import subprocess
import sys

import numpy as np
import pytest
from ops_inputs import Random
from test_ops_scan import update_inputs

from adder import ops

X, ONES = np.arange(16, dtype="f").reshape(2, 8), np.ones(8, "f")


def norm(x):
    return ops.rmsnorm_fn(x, ONES, None)


# --- memory that a call writes while it reads ---


def updated(arrays):
    """(out, state) of a step with copies of the operands."""
    arrays = {k: None if v is None else np.copy(v) for k, v in arrays.items()}
    return ops.selective_state_update(**arrays), arrays["state"]


@pytest.mark.parametrize("name", ["x", "dt", "A", "B", "C", "D"])
def test_operands_inside_the_state(name):
    arrays = {k: None if v is None else v.astype("f") for k, v in update_inputs().items()}
    view = arrays[name]
    memory = arrays["state"].reshape(-1)[3:]
    arrays[name] = memory[: view.size].reshape(view.shape[::-1]).T
    want, state = updated(arrays)
    got = ops.selective_state_update(**arrays)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(arrays["state"], state)


def test_inputs_inside_the_conv_state():
    state, weight = Random()(3, 8, 6).astype("f"), Random(1)(8, 4).astype("f")
    x = state[::-1, :, 1:4]
    want_state = state.copy()
    want = ops.causal_conv1d_update(x.copy(), want_state, weight)
    np.testing.assert_array_equal(ops.causal_conv1d_update(x, state, weight), want)
    np.testing.assert_array_equal(state, want_state)


def test_final_states_may_replace_initial_states():
    x, states, weight = Random()(3, 8, 5).astype("f"), Random(1)(3, 8, 3).astype("f"), np.ones((8, 4), "f")
    want, last = ops.causal_conv1d_fn(x, weight, initial_states=states, return_final_states=True)
    for out in (states, states[::-1]):
        memory = states.copy()
        out = memory if out is states else memory[::-1]
        got, final = ops.causal_conv1d_fn(x, weight, initial_states=memory, return_final_states=True,
                                          final_states_out=out)
        assert final is out
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(out, last)


def test_a_state_that_overlaps_itself():
    memory = np.zeros(100, "f")
    x, weight = np.ones((3, 8), "f"), np.ones((8, 4), "f")
    for strides in ((4, 12, 4), (0, 12, 4), (96, 8, 4), (96, 12, 0)):
        state = np.lib.stride_tricks.as_strided(memory, (3, 8, 3), strides)
        with pytest.raises(ValueError, match="causal_conv1d_update: conv_state: expected memory of its own for "
                           r"every element, got a stride of \d+ bytes on axis \d"):
            ops.causal_conv1d_update(x, state, weight)
    ops.causal_conv1d_update(x, np.zeros((8, 3, 3), "f").transpose(1, 0, 2)[:, :, ::-1], weight)


# --- indices that another thread writes meanwhile ---

CHANGING = """
import random, threading, time
import numpy as np
from adder import ops
index, good, bad, call = {setup}
done = False
def write():
    while not done:
        for values in (good, bad):
            index[...] = values
            until = time.perf_counter() + random.uniform(0, 2e-3)  # about what a call takes
            while time.perf_counter() < until:
                pass
writer = threading.Thread(target=write)
writer.start()
refused = taken = 0
end = time.monotonic() + {seconds}
while time.monotonic() < end or not (refused and taken):
    try:
        call()
        taken += 1
    except ValueError:
        refused += 1
done = True
writer.join()
"""


@pytest.mark.parametrize("setup", [
    # Sequences that end at 2^40, or have nothing in them.
    "(n := 20000) and ((i := np.arange(n + 1)), i.copy(), np.where(i % 2, i, 2**40), "
    "lambda x=np.ones((n, 1), 'f'): ops.causal_conv1d_varlen_states(x, i, 1))",
    "(n := 100000) and ((i := np.zeros(n + 1, int)), i.copy(), np.arange(n + 1) % 2 * 2**40, "
    "lambda x=np.ones((1, 1, 1, 1), 'f'): ops.mamba_chunk_scan_combined("
    "x, x[..., 0], -np.ones(1, 'f'), x, x, 64, cu_seqlens=i, return_varlen_states=True))",
    "(n := 20000) and ((i := np.arange(n)), i.copy(), i - 2**40, "
    "lambda x=np.ones((n, 1), 'f'), s=np.ones((n, 1, 3), 'f'), w=np.ones((1, 4), 'f'): "
    "ops.causal_conv1d_update(x, s, w, cache_seqlens=i))",
    "(n := 20000) and ((i := np.arange(n)), i.copy(), i + 2**40, "
    "lambda x=np.ones((n, 1), 'f'), s=np.ones((n, 1, 1), 'f'), A=-np.ones((1, 1), 'f'): "
    "ops.selective_state_update(s, x, x, A, x, x, state_batch_indices=i))"],
    ids=["varlen_states", "chunk_scan", "conv_update", "state_update"])
def test_what_is_checked_is_what_is_used(setup):
    code = CHANGING.format(setup=setup, seconds=1.0)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- arrays of other kinds ---


@pytest.mark.parametrize("wrong", [None, 5, "x", [1.0], np.ndarray, object(), {}])
def test_no_arrays(wrong):
    with pytest.raises(TypeError, match="rmsnorm_fn: x: expected a NumPy array, .*, got"):
        norm(wrong)


def test_other_arguments():
    x, weight = np.ones((1, 8, 3), "f"), np.ones((8, 4), "f")
    for wrong in (None, 1.5, "4", np.ones(2)):
        with pytest.raises(TypeError, match="causal_conv1d_varlen_states: state_len: expected an integer, got"):
            ops.causal_conv1d_varlen_states(X, np.array([0, 2]), wrong)
        with pytest.raises(TypeError, match="mamba_chunk_scan_combined: chunk_size: expected an integer, got"):
            ops.mamba_chunk_scan_combined(X, X, X, X, X, wrong)
        with pytest.raises(TypeError, match="set_num_threads: n: expected an integer, got"):
            ops.set_num_threads(wrong)
    for wrong in ("gelu", ["silu"], np.array(["silu", "silu"]), 1, True):
        with pytest.raises(ValueError, match="causal_conv1d_fn: activation: expected None, 'silu' or 'swish', got"):
            ops.causal_conv1d_fn(x, weight, activation=wrong)


def test_a_mask_is_not_ignored():
    with pytest.raises(TypeError, match="rmsnorm_fn: x: expected an array without a mask, got MaskedArray"):
        norm(np.ma.masked_greater(X, 3))


def test_other_subclasses_are_arrays(tmp_path):
    class Named(np.ndarray):
        def __array_finalize__(self, source):
            self.name = "x"

    mapped = np.memmap(tmp_path / "x", "f", "w+", shape=X.shape)
    mapped[:] = X
    for x in (X.view(Named), mapped):
        got = norm(x)
        assert type(got) is np.ndarray
        np.testing.assert_array_equal(got, norm(X))


def test_foreign_byte_order():
    for dtype in (">f4", ">f8", ">f2"):
        with pytest.raises(TypeError, match=f"rmsnorm_fn: x: expected float32, .*, got {dtype}"):
            norm(X.astype(dtype))
    with pytest.raises(TypeError, match="seq_idx: expected .*, got >i4"):
        ops.causal_conv1d_fn(X[None], np.ones((2, 2), "f"), seq_idx=np.zeros((1, 8), ">i4"))


def test_read_only_states():
    state = np.zeros((3, 8, 3), "f")
    state.setflags(write=False)
    with pytest.raises(ValueError, match="conv_state: expected a writeable array, got a read-only one"):
        ops.causal_conv1d_update(np.ones((3, 8), "f"), state, np.ones((8, 4), "f"))


def test_numbers_beyond_64_bits():
    x, weight = np.ones((1, 8), "f"), np.ones((8, 4), "f")
    for call in (lambda n: ops.causal_conv1d_varlen_states(x, np.array([0, 1]), n),
                 lambda n: ops.rmsnorm_fn(X, ONES, None, group_size=n),
                 ops.set_num_threads):
        for n in (2**30, 2**64, 2**200) if call is ops.set_num_threads else (2**64, 2**200):
            with pytest.raises((TypeError, ValueError, OverflowError)):
                call(n)
    for index in (-2, 1, 2**40, -(2**63)):
        with pytest.raises(ValueError, match=r"conv_state_indices\[0\]: expected -1 to 0"):
            ops.causal_conv1d_update(x, np.zeros((1, 8, 3), "f"), weight, conv_state_indices=np.array([index]))
    with pytest.raises(ValueError, match=r"cache_seqlens\[0\]: expected at least 0"):
        ops.causal_conv1d_update(x, np.zeros((1, 8, 3), "f"), weight, cache_seqlens=np.array([-(2**63)]))
    late = ops.causal_conv1d_update(x, np.zeros((1, 8, 3), "f"), weight, cache_seqlens=np.array([2**63 - 1]))
    np.testing.assert_array_equal(late, np.ones((1, 8)))


def test_batches_of_nothing_take_no_memory():
    def nothing(*shape):
        return np.zeros(shape, "f")

    huge = 2**40
    one = np.lib.stride_tricks.as_strided(nothing(1), (huge, 4), (0, 0))
    out = ops.selective_state_update(nothing(huge, 0, 4), nothing(huge, 0), nothing(huge, 0), nothing(0, 4), one, one)
    assert out.shape == (huge, 0)
    assert ops.causal_conv1d_update(nothing(huge, 0), nothing(huge, 0, 3), nothing(0, 4)).shape == (huge, 0)
    assert ops.causal_conv1d_fn(nothing(huge, 0, 5), nothing(0, 4)).shape == (huge, 0, 5)
    assert ops.rmsnorm_fn(nothing(huge, 0), nothing(0), None).shape == (huge, 0)


# --- PyTorch ---


def test_the_default_device_does_not_matter():
    torch = pytest.importorskip("torch")
    if not hasattr(torch, "set_default_device"):
        pytest.skip("PyTorch 1")
    args = [torch.ones(1, 2, 3), torch.ones(1, 2, 3), -torch.ones(2, 4), torch.ones(1, 4, 3), torch.ones(1, 4, 3)]
    torch.set_default_device("meta")
    try:
        out, state = ops.selective_scan_fn(*args, return_last_state=True)
    finally:
        torch.set_default_device(None)
    assert out.device.type == state.device.type == "cpu"


def test_tensors_without_strides():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="rmsnorm_fn: x: expected a strided tensor, got torch.sparse_coo"):
        norm(torch.eye(8).to_sparse())
    assert norm(torch.from_numpy(X).expand(3, 2, 8)).shape == (3, 2, 8)


@pytest.mark.parametrize("name, value", [("shape", 5), ("shape", (2,)), ("shape", (None, 8)),
                                         ("stride", lambda self: None), ("stride", lambda self: (1, 2.5)),
                                         ("data_ptr", lambda self: 0), ("data_ptr", lambda self: "x")])
def test_subclasses_that_lie(name, value):
    torch = pytest.importorskip("torch")
    lying = type("Lying", (torch.Tensor,), {name: value})
    x = torch.from_numpy(X.copy()).as_subclass(lying)
    with pytest.raises((TypeError, ValueError)):
        norm(x)


def test_fake_tensors():
    torch = pytest.importorskip("torch")
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    with fake.FakeTensorMode():
        x = torch.ones(2, 8)
    with pytest.raises((TypeError, RuntimeError)):
        norm(x)


# --- DLPack ---


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Exporter:
    """X by DLPack, with some fields of the structure changed."""

    def __init__(self, shape=(2, 8), strides=None, name=b"dltensor", **changes):
        self.name = name
        axes = [None if n is None else (ctypes.c_int64 * len(n))(*n) for n in (shape, strides)]
        self.tensor = DLTensor(data=X.ctypes.data, device_type=1, ndim=len(shape or (0, 0)), code=2, bits=32,
                               lanes=1, shape=axes[0], strides=axes[1])
        for field, value in changes.items():
            setattr(self.tensor, field, value)

    def __dlpack__(self, stream=None):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), self.name, None)


def test_dlpack_with_and_without_strides():
    np.testing.assert_array_equal(norm(Exporter()), norm(X))
    np.testing.assert_array_equal(norm(Exporter(strides=(8, 1))), norm(X))
    np.testing.assert_array_equal(norm(Exporter(shape=(8, 8), strides=(1, 1))), norm(
        np.lib.stride_tricks.as_strided(X, (8, 8), (4, 4))))
    np.testing.assert_array_equal(norm(Exporter(shape=(1, 8), byte_offset=32)), norm(X[1:]))
    assert norm(Exporter(shape=(0, 8), data=None)).shape == (0, 8)


@pytest.mark.parametrize("changes, error, message", [
    (dict(ndim=-1), ValueError, "expected at most 8 axes, got -1"),
    (dict(ndim=9), ValueError, "expected at most 8 axes, got 9"),
    (dict(shape=None), ValueError, "expected a shape, got none"),
    (dict(shape=(-2, 8)), ValueError, "expected sizes from 0 on, got -2 on axis 0"),
    (dict(shape=(2**60, 8)), ValueError, r"expected less than 2\^56 bytes, got size 1152921504606846976 on axis 0"),
    (dict(strides=(2**62, 1)), ValueError, "on axis 0"),
    (dict(strides=(-(2**63), 1)), ValueError, "on axis 0"),
    (dict(data=None), ValueError, "expected an address of its elements, got none"),
    (dict(device_type=2), TypeError, "expected memory of the CPU, got DLPack device 2"),
    (dict(bits=8), TypeError, "got DLPack type 2 of 8 bits"),
    (dict(lanes=4), TypeError, "got DLPack type 2"),
    (dict(name=b"used_dltensor"), TypeError, "that nobody has used yet, got <capsule"),
])
def test_dlpack_that_cannot_be(changes, error, message):
    with pytest.raises(error, match=f"rmsnorm_fn: x: .*{message}"):
        norm(Exporter(**changes))


def test_dlpack_that_is_none():
    for result in (None, 5, X):
        other = type("Other", (), {"__dlpack__": lambda self: result})()
        with pytest.raises(TypeError, match=r"rmsnorm_fn: x: expected __dlpack__\(\) to return a capsule"):
            norm(other)
    with pytest.raises(ZeroDivisionError):
        norm(type("Failing", (), {"__dlpack__": lambda self: 1 / 0})())
