"""What the operations do with arrays on a GPU besides the numbers: kinds, streams, indices, mistakes."""
import re
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from device import Producer, download, on_device
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ops_inputs import Random
from test_ops_arrays import CALLS, call, operands
from test_ops_scan import scan_inputs, update_inputs

from adder import _core, ops

# fp32 scans against each other: each is within the bar of CONFORMANCE.md section 3 of float64.
BAR = dict(atol=4e-5, rtol=4e-4)


def there(arrays):
    return {k: None if v is None else Producer(v) for k, v in arrays.items()}


def results(name, arrays):
    return [x.numpy() if isinstance(x, Producer) else download(x) for x in call(name, arrays)]


@pytest.mark.parametrize("name", CALLS)
def test_the_host_s_results(name):
    for got, want in zip(results(name, there(operands(name))), call(name, operands(name))):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, **BAR)


@pytest.mark.parametrize("name", CALLS)
def test_the_same_bits_every_time(name):
    first = results(name, there(operands(name)))
    for got, want in zip(results(name, there(operands(name))), first):
        np.testing.assert_array_equal(got, want)


def test_results_are_on_the_device():
    out, state = ops.selective_scan_fn(**there(operands("selective_scan_fn")), return_last_state=True)
    for array, shape in ((out, (2, 6, 37)), (state, (2, 6, 5))):
        assert isinstance(array, ops.DeviceArray)
        assert array.shape == shape and array.dtype == "float32"
        assert array.__dlpack_device__() == (2, 0)
    assert repr(out) == "<adder.ops.DeviceArray (2, 6, 37) float32 on cuda:0>"
    # They are operands of the next call.
    assert ops.rmsnorm_fn(out, Producer(np.ones(37, "f")), None).shape == (2, 6, 37)


def test_bfloat16():
    bits = lambda x: (np.asarray(x, "f").view(np.uint32) >> 16).astype(np.uint16)  # noqa: E731
    floats = lambda b: (b.astype(np.uint32) << 16).view("f")  # noqa: E731
    x, weight = bits(Random()(4, 64)), bits(Random(1)(64))
    out = ops.rmsnorm_fn(Producer(x), Producer(weight), None)
    assert out.dtype == "bfloat16"
    want = ops.rmsnorm_fn(floats(x), floats(weight), None)
    # Half a unit of the last of 8 bits.
    np.testing.assert_allclose(floats(_core.emulated_download(out)), want, rtol=2**-8, atol=1e-6)


def test_exporters_get_a_stream():
    arrays = there(operands("rmsnorm_fn"))
    ops.rmsnorm_fn(**arrays)
    for name, array in arrays.items():
        assert set(array.streams) == {1}, name  # of the device's own, as DLPack calls it


def test_cupy_gets_its_own(monkeypatch):
    """An array whose class is CuPy's gets what cupy.from_dlpack makes of the result."""
    cupy = type(sys)("cupy")
    cupy.from_dlpack = lambda array: ("cupy", array)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    array_type = type("ndarray", (Producer,), {"__module__": "cupy"})
    kind, out = ops.rmsnorm_fn(array_type(np.ones((2, 8), "f")), Producer(np.ones(8, "f")), None)
    assert kind == "cupy" and out.shape == (2, 8)


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "gaps", "reversed"])
@pytest.mark.parametrize("name", CALLS)
def test_layouts(name, layout):
    from ops_inputs import lay_out
    arrays = {k: None if v is None else lay_out(v, layout) for k, v in operands(name).items()}
    for got, want in zip(results(name, there(arrays)), call(name, operands(name))):
        np.testing.assert_allclose(got, want, **BAR)


def test_the_host_cannot_touch_it():
    """What all of these tests rest on: host code that reads an operand would end the process."""
    code = ("import ctypes, numpy as np; from adder import _core\n"
            "array = _core.emulated_upload(np.ones(4, 'f'))\n"
            "ctypes.c_float.from_address(_core.emulated_address(array)).value")
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGSEGV


# --- what a device cannot do is done on the host, on copies ---


@pytest.mark.parametrize("change", ["complex A", "constant B", "growing", "negative dt_limit"])
def test_through_the_host(change):
    if change in ("growing", "negative dt_limit"):
        name, arrays = "mamba_chunk_scan_combined", operands("mamba_chunk_scan_combined")
        options = dict(chunk_size=64, return_final_states=True)
        if change == "growing":
            arrays["A"] = -arrays["A"] / 64
        else:
            options["dt_limit"] = (-1.0, 1.0)
    else:
        name, arrays, options = "selective_scan_fn", operands("selective_scan_fn"), dict(return_last_state=True)
        if change == "complex A":
            arrays["A"] = arrays["A"].astype("complex64") * (1 + 0.5j)
            arrays["B"] = Random(5)(2, 2, 5, 74).astype("f")
            arrays["C"] = Random(6)(2, 2, 5, 74).astype("f")
        else:
            arrays["B"] = Random(5)(6, 5).astype("f")
    operation = getattr(ops, name)
    for got, want in zip(on_device(operation)(**arrays, **options), operation(**arrays, **options)):
        np.testing.assert_array_equal(got, want)


def test_a_positive_A_of_a_scan():
    arrays = operands("selective_scan_fn")
    arrays["A"] = -arrays["A"] / 64
    got = on_device(ops.selective_scan_fn)(**arrays, delta_softplus=True)
    np.testing.assert_allclose(got, ops.selective_scan_fn(**arrays, delta_softplus=True), **BAR)


def test_operands_inside_the_state():
    arrays = {k: v.astype("f") for k, v in update_inputs().items() if v is not None}
    want = ops.selective_state_update(**{k: v.copy() for k, v in arrays.items()})
    state = Producer(arrays["state"])

    class Inside(Producer):
        """x, as a view of the state's memory with x's numbers there."""

        def __init__(self, array):
            self.held, self.streams = array, []

    memory = arrays["state"].copy()
    memory.reshape(-1)[: arrays["x"].size] = arrays["x"].reshape(-1)
    state = Producer(memory)
    arrays["state"] = memory.copy()
    want = ops.selective_state_update(**arrays)
    x = Inside(_core.emulated_slice(state.held, list(arrays["x"].shape)))
    got = ops.selective_state_update(**{**there(arrays), "state": state, "x": x})
    np.testing.assert_allclose(_core.emulated_download(got), want, **BAR)
    np.testing.assert_allclose(state.numpy(), arrays["state"], **BAR)


# --- threads ---


def test_many_threads_at_once():
    names = list(CALLS)
    want = {name: results(name, there(operands(name))) for name in names}
    failures = []

    def work(start):
        try:
            for i in range(len(names)):
                name = names[(start + i) % len(names)]
                for got, expected in zip(results(name, there(operands(name))), want[name]):
                    np.testing.assert_array_equal(got, expected)
        except BaseException as e:  # a thread's exceptions are nobody's otherwise
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


# --- mistakes ---


X, ONES = np.arange(16, dtype="f").reshape(2, 8), np.ones(8, "f")


def test_mixed_devices_are_both_named():
    with pytest.raises(TypeError, match="rmsnorm_fn: weight: expected an array on cuda:0, where x is, got one on the CPU"):
        ops.rmsnorm_fn(Producer(X), ONES, None)
    with pytest.raises(TypeError, match="rmsnorm_fn: weight: expected an array on the CPU, where x is, got one on cuda:0"):
        ops.rmsnorm_fn(X, Producer(ONES), None)


def test_exporters_that_lie():
    class Lying(Producer):
        device = (2, 0)

        def __dlpack_device__(self):
            return self.device

    lying = Lying(X)
    for device, message in (((1, 0), r"expected memory of the CPU, got DLPack device 2"),
                            ((10, 0), "expected memory of the CPU or of a CUDA device, got DLPack device 10"),
                            ((2, -1), "expected memory of the CPU or of a CUDA device, got DLPack device 2"),
                            ((2,), r"expected __dlpack_device__\(\) to return \(type, number\), got \(2,\)"),
                            (None, r"expected __dlpack_device__\(\) to return \(type, number\), got None"),
                            (("a", 0), r"expected __dlpack_device__\(\) to return \(type, number\), got \('a', 0\)")):
        lying.device = device
        with pytest.raises(TypeError, match="rmsnorm_fn: x: " + message):
            ops.rmsnorm_fn(lying, Producer(ONES), None)
    lying.device = (2, 1)
    with pytest.raises(ValueError, match="device: expected cuda:0, got cuda:1"):
        ops.rmsnorm_fn(lying, Producer(ONES), None)


def test_unaligned_elements():
    with pytest.raises(ValueError, match="rmsnorm_fn: x: expected elements at multiples of 4 bytes, got address 0x"):
        ops.rmsnorm_fn(Producer(X, shift=2), Producer(ONES), None)


def test_indices_are_checked():
    arrays = there({k: v for k, v in update_inputs().items() if v is not None})
    batch = arrays["x"].held.shape[0]
    for index in (2**40, -2, batch):
        indices = Producer(np.array([0, index] + list(range(2, batch)))[:batch])
        with pytest.raises(ValueError, match=rf"state_batch_indices\[1\]: expected -1 to {batch - 1}, got {index}"):
            ops.selective_state_update(**arrays, state_batch_indices=indices)
    with pytest.raises(ValueError, match="state_batch_indices: expected distinct entries, got 0 twice"):
        ops.selective_state_update(**arrays, state_batch_indices=Producer(np.zeros(batch, "i4")))
    with pytest.raises(ValueError, match=r"cu_seqlens\[1\]: expected 0 to 2, got 5"):
        ops.causal_conv1d_varlen_states(Producer(X), Producer(np.array([0, 5])), 3)


def test_nothing_is_written_where_an_error_is():
    arrays = operands("selective_state_update")
    held = there(arrays)
    with pytest.raises(ValueError):
        ops.selective_state_update(**{**held, "C": Producer(np.zeros((1, 1), "f"))})
    np.testing.assert_array_equal(held["state"].numpy(), arrays["state"])


@st.composite
def mistakes(draw):
    """An operation, its operands, and one of them made wrong: (name, arrays, argument, what)."""
    name = draw(st.sampled_from(sorted(CALLS)))
    arrays = operands(name)
    argument = draw(st.sampled_from(sorted(k for k, v in arrays.items() if v is not None)))
    what = draw(st.sampled_from(["axis", "size", "dtype", "host", "kind", "unaligned"]))
    return name, arrays, argument, what


@settings(deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=200)
@given(mistakes())
def test_mistakes_are_named(problem):
    """ValueError or TypeError that names the operation, an argument, what was expected and what was got."""
    name, arrays, argument, what = problem
    held = there(arrays)
    wrong = arrays[argument]
    if what == "axis":
        held[argument] = Producer(np.zeros((1,) * 7, "f"))
    elif what == "size":
        held[argument] = Producer(np.zeros(tuple(n + 3 for n in wrong.shape), "f"))
    elif what == "dtype":
        held[argument] = Producer(np.zeros(wrong.shape, "i8"))
    elif what == "host":
        held[argument] = wrong
    elif what == "kind":
        held[argument] = wrong.tolist()
    else:
        held[argument] = Producer(wrong, shift=1)
    before = {k: v.numpy() for k, v in held.items() if isinstance(v, Producer)}
    # A size may be wrong for another operand only: of those that share it, one is named.
    blamed = "|".join(sorted(CALLS[name][0]())) if what in ("size", "axis", "host") else argument
    pattern = rf"^{name}: (group_size|{blamed})\b.*: expected .*, got "
    with pytest.raises((ValueError, TypeError)) as error:
        call(name, held)
    assert re.search(pattern, str(error.value), re.S), str(error.value)
    if what == "host":
        assert "cuda:0" in str(error.value) and "the CPU" in str(error.value)
    for k, value in before.items():
        np.testing.assert_array_equal(held[k].numpy(), value)


# --- PyTorch ---


TORCH = """
import sys; sys.path[:0] = {path!r}
import numpy as np, torch
from device import Producer
from adder import _core
real_empty, real_like = torch.empty, torch.empty_like
class Stream:
    cuda_stream, synchronized, asked = 0, 0, 0
    def synchronize(self): Stream.synchronized += 1
class OnGpu(torch.Tensor):
    "A tensor that says it is on a GPU, in the emulated one's memory."
    is_cpu, is_cuda = False, True
    device = torch.device("cuda", 0)
    @staticmethod
    def make(array, held=None):
        t = real_empty(0).as_subclass(OnGpu)
        t.held = Producer(array)
        t.meta = torch.empty_strided(array.shape, [s // array.itemsize for s in array.strides],
                                     dtype=getattr(torch, str(array.dtype)), device="meta")
        return t
    shape = property(lambda self: self.meta.shape)
    dtype = property(lambda self: self.meta.dtype)
    stride = lambda self: self.meta.stride()
    data_ptr = lambda self: _core.emulated_address(self.held.held)
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunction():
            return function(*args, **(kwargs or {{}}))
def current_stream(device):
    assert device == torch.device("cuda", 0); Stream.asked += 1
    return Stream()
torch.cuda.current_stream = current_stream
def empty(shape, dtype=None, device=None, **k):
    if str(device).startswith("cuda"):
        return OnGpu.make(np.zeros(shape, str(dtype)[6:]))
    return real_empty(shape, dtype=dtype, device=device, **k)
torch.empty = empty
torch.empty_like = lambda x: OnGpu.make(np.zeros(x.shape, str(x.dtype)[6:])) if isinstance(x, OnGpu) else real_like(x)
from adder import ops
from test_ops_scan import scan_inputs
arrays = {{k: v.astype("f") for k, v in scan_inputs().items()}}
want, want_state = ops.selective_scan_fn(**arrays, delta_softplus=True, return_last_state=True)
out, state = ops.selective_scan_fn(**{{k: OnGpu.make(v) for k, v in arrays.items()}}, delta_softplus=True,
                                   return_last_state=True)
assert isinstance(out, OnGpu) and isinstance(state, OnGpu)
np.testing.assert_allclose(out.held.numpy(), want, **dict(atol=4e-5, rtol=4e-4))
np.testing.assert_allclose(state.held.numpy(), want_state, **dict(atol=4e-5, rtol=4e-4))
assert Stream.asked == 1 and Stream.synchronized == 0  # on PyTorch's stream, without a wait
try:
    ops.rmsnorm_fn(OnGpu.make(np.ones((2, 8), "f")), torch.ones(8), None)
except TypeError as e:
    assert "weight: expected an array on cuda:0, where x is, got one on the CPU" in str(e), e
else:
    raise AssertionError("mixed devices were taken")
x, ones = np.ones((2, 8), "f"), np.ones(8, "f")
producer = Producer(ones)
ops.rmsnorm_fn(OnGpu.make(x), producer, None)
assert producer.streams == [1], producer.streams   # PyTorch's default stream, as DLPack calls it
ops.rmsnorm_fn(Producer(x), OnGpu.make(ones), None)
assert Stream.synchronized == 1                    # its stream is not ours: its work is waited for
t = OnGpu.make(x)
t.requires_grad_()
try:
    ops.rmsnorm_fn(t, OnGpu.make(ones), None)
except RuntimeError as e:
    assert "x requires a gradient" in str(e), e
else:
    raise AssertionError("a gradient was ignored")
print("done")
"""


def test_pytorch_tensors():
    """In a process of its own: PyTorch's names are replaced, for there is no GPU."""
    pytest.importorskip("torch")
    code = TORCH.format(path=[p for p in sys.path if p])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr
