"""causal_conv1d_fn, causal_conv1d_update and causal_conv1d_varlen_states against loops in float64."""
import numpy as np
import ops_reference as reference
import pytest
from ops_inputs import KINDS, LAYOUTS, Random, convert, lay_out, rounded
from ops_reference import close, to_numpy

from adder import ops


def conv_inputs(batch=2, dim=6, seqlen=37, width=4, seed=0):
    r = Random(seed)
    return dict(x=r(batch, dim, seqlen), weight=r(dim, width), bias=r(dim),
                initial_states=r(batch, dim, width - 1))


def check_conv(values, kind="float32", **options):
    arrays, exact = rounded(values, kind)
    want, want_final = reference.causal_conv1d(**exact, **options)
    got, final = ops.causal_conv1d_fn(**arrays, return_final_states=True, **options)
    assert str(got.dtype) == kind and type(got) is type(arrays["x"])
    close(got, want)
    assert str(final.dtype) == kind
    if kind == "float64":  # arithmetic and copies are float32
        close(final, want_final)
    else:
        np.testing.assert_array_equal(to_numpy(final), want_final)  # exact: they are copies
    return got


@pytest.mark.parametrize("activation", [None, "silu", "swish"])
@pytest.mark.parametrize("kind", KINDS)
def test_conv_dtypes(kind, activation):
    check_conv(conv_inputs(), kind, activation=activation)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 9])
@pytest.mark.parametrize("batch, dim, seqlen", [(1, 1, 1), (2, 70, 2), (1, 300, 130), (3, 5, 257)])
def test_conv_shapes(batch, dim, seqlen, width):
    check_conv(conv_inputs(batch, dim, seqlen, width), activation="silu")
    check_conv({**conv_inputs(batch, dim, seqlen, width), "initial_states": None, "bias": None})


IDS = [[0] * 10 + [1] * 5 + [2] * 22, [5] + [6] * 2 + [5] * 30 + [-1] * 4, [-1] * 3 + [0] * 33 + [1],
       list(range(37)), [-1] * 37]


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("ids", IDS)
def test_conv_packed_sequences(ids, index_dtype):
    seq_idx = np.array([ids, [0] * 37], index_dtype)
    got = check_conv(conv_inputs(), seq_idx=seq_idx, activation="silu")
    values, _ = rounded(conv_inputs(), "float32")
    for number, (begin, end, name) in enumerate(reference.segments(ids)):
        alone = {**values, "x": values["x"][:1, :, begin:end],
                 "initial_states": values["initial_states"][:1] if number == 0 else None}
        want = ops.causal_conv1d_fn(**alone, activation="silu")
        if name < 0:
            want = np.zeros_like(want)
        elif number == 1 and ids[0] < 0:  # the first that is not padding gets the initial state
            alone["initial_states"] = values["initial_states"][:1]
            want = ops.causal_conv1d_fn(**alone, activation="silu")
        np.testing.assert_array_equal(got[:1, :, begin:end], want)  # alone and packed: the same sums


@pytest.mark.parametrize("layout", LAYOUTS)
def test_conv_layouts(layout):
    values, exact = rounded(conv_inputs(), "float32")
    want, want_final = reference.causal_conv1d(**exact)
    laid_out = {k: lay_out(v, layout) for k, v in values.items()}
    out_states = lay_out(np.full((2, 6, 3), np.nan, "f"), layout)
    got, final = ops.causal_conv1d_fn(**laid_out, return_final_states=True, final_states_out=out_states)
    assert final is out_states
    close(got, want)
    np.testing.assert_array_equal(final, want_final.astype("f"))


def test_conv_keeps_the_order_in_memory():
    x = np.ascontiguousarray(np.ones((2, 37, 6), "f")).transpose(0, 2, 1)
    assert ops.causal_conv1d_fn(x, np.ones((6, 4), "f")).strides == x.strides


@pytest.mark.parametrize("batch, dim, seqlen", [(0, 4, 5), (2, 0, 5), (2, 4, 0)])
def test_conv_zero_sizes(batch, dim, seqlen):
    check_conv(conv_inputs(batch, dim, seqlen))


@pytest.mark.parametrize("width", [1, 3, 4])
def test_conv_pieces_equal_one_pass(width):
    values, _ = rounded(conv_inputs(seqlen=300, width=width), "float32")
    whole, last = ops.causal_conv1d_fn(**values, return_final_states=True, activation="silu")
    state, pieces = values.pop("initial_states"), []
    for begin, end in [(0, 1), (1, 2), (2, 5), (5, 170), (170, 300)]:
        piece, state = ops.causal_conv1d_fn(**{**values, "x": values["x"][..., begin:end]},
                                            initial_states=state, return_final_states=True,
                                            activation="silu")
        pieces.append(piece)
    np.testing.assert_array_equal(np.concatenate(pieces, axis=-1), whole)
    np.testing.assert_array_equal(state, last)


def update(state, x, weight, bias, length):
    """New state, out: the state's last width - 1 inputs in front of x."""
    both = np.concatenate([state, x], axis=-1)
    width = weight.shape[1]
    past = both[..., length - (width - 1):length]
    out, _ = reference.causal_conv1d(x, weight, bias, initial_states=past, activation="silu")
    return both[..., both.shape[-1] - length:], out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width, length, seqlen", [(4, 3, None), (4, 3, 1), (4, 6, 2), (2, 1, 5), (3, 5, 9),
                                                   (1, 0, 2), (1, 2, 1), (7, 6, None)])
def test_update(kind, width, length, seqlen):
    r = Random(4)
    values = dict(x=r(3, 70, seqlen or 1), conv_state=r(3, 70, length), weight=r(70, width), bias=r(70))
    arrays, exact = rounded(values, kind)
    want_state, want = update(exact["conv_state"], exact["x"], exact["weight"], exact["bias"], length)
    if seqlen is None:
        arrays["x"], want = arrays["x"][..., 0], want[..., 0]
    got = ops.causal_conv1d_update(**arrays, activation="silu")
    assert str(got.dtype) == kind
    close(got, want)
    np.testing.assert_array_equal(to_numpy(arrays["conv_state"]), want_state)  # exact: copies


@pytest.mark.parametrize("layout", LAYOUTS)
def test_update_layouts(layout):
    r = Random(5)
    values, exact = rounded(dict(x=r(3, 8, 2), conv_state=r(3, 8, 5), weight=r(8, 4), bias=r(8)), "float32")
    want_state, want = update(exact["conv_state"], exact["x"], exact["weight"], exact["bias"], 5)
    laid_out = {k: lay_out(v, layout) for k, v in values.items()}
    close(ops.causal_conv1d_update(**laid_out, activation="silu"), want)
    np.testing.assert_array_equal(laid_out["conv_state"], want_state.astype("f"))


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_update_indices(index_dtype):
    r = Random(6)
    values, exact = rounded(dict(x=r(3, 8, 1), conv_state=r(5, 8, 3), weight=r(8, 4), bias=r(8)), "float32")
    slots = np.array([4, -1, 1], index_dtype)
    want_state, want = update(exact["conv_state"][slots], exact["x"], exact["weight"], exact["bias"], 3)
    want[1] = 0
    before = values["conv_state"].copy()
    close(ops.causal_conv1d_update(**values, activation="silu", conv_state_indices=slots), want)
    before[[4, 1]] = want_state[[0, 2]]
    np.testing.assert_array_equal(values["conv_state"], before)


@pytest.mark.parametrize("length", [3, 4, 7])
def test_update_circular_buffer_equals_one_pass(length):
    values, _ = rounded(conv_inputs(seqlen=40), "float32")
    del values["initial_states"]
    want = ops.causal_conv1d_fn(**values, activation="silu")
    buffer, t = np.zeros((2, 6, length), "f"), 0
    for count in [1, 2, 1, 3, 1, 1, 2, 3]:
        x = values["x"][..., t:t + count]
        got = ops.causal_conv1d_update(x, buffer, values["weight"], values["bias"], "silu",
                                       cache_seqlens=np.full(2, t, "i4"))
        np.testing.assert_array_equal(got, want[..., t:t + count])
        for i in range(count):
            np.testing.assert_array_equal(buffer[..., (t + i) % length], x[..., i])
        t += count


def test_varlen_states():
    x = Random(7)(37, 5).astype("f")
    cu_seqlens = np.array([0, 10, 10, 12, 37])
    for length in (0, 3, 12):
        got = ops.causal_conv1d_varlen_states(x, cu_seqlens, length)
        want = np.zeros((4, 5, length), "f")
        for i in range(4):
            tail = x[cu_seqlens[i]:cu_seqlens[i + 1]][-length:] if length else x[:0]
            want[i, :, length - len(tail):] = tail.T
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", KINDS)
def test_varlen_states_are_copies(kind):
    x = convert(Random(8)(9, 4), kind)
    got = ops.causal_conv1d_varlen_states(x, np.array([0, 9], "i4"), 2)
    assert type(got) is type(x) and got.dtype == x.dtype
    np.testing.assert_array_equal(to_numpy(got)[0], to_numpy(x)[-2:].T)


@pytest.mark.parametrize("call, error, message", [
    (lambda x, w: ops.causal_conv1d_fn(x, w, activation="relu"), ValueError,
     "causal_conv1d_fn: activation: expected None, 'silu' or 'swish', got 'relu'"),
    (lambda x, w: ops.causal_conv1d_fn(x, w[:, :0]), ValueError, "width of at least 1, got 0"),
    (lambda x, w: ops.causal_conv1d_fn(x, w[:5]), ValueError, r"weight: expected shape \(6, 4\), got \(5, 4\)"),
    (lambda x, w: ops.causal_conv1d_fn(x, w, initial_states=x[..., :4]), ValueError,
     r"initial_states: expected shape \(2, 6, 3\), got \(2, 6, 4\)"),
    (lambda x, w: ops.causal_conv1d_fn(x, w, seq_idx=np.zeros((2, 37), "f")), ValueError,
     "seq_idx: expected int32 or int64, got float32"),
    (lambda x, w: ops.causal_conv1d_fn(x, "w"), TypeError, "weight: expected .*, got str"),
    (lambda x, w: ops.causal_conv1d_fn(x, w, return_final_states=True, final_states_out=x), ValueError,
     r"final_states_out: expected shape \(2, 6, 3\)"),
    (lambda x, w: ops.causal_conv1d_update(x, x[..., :2].copy(), w), ValueError,
     "conv_state: expected at least width - 1 = 3 entries, got 2"),
    (lambda x, w: ops.causal_conv1d_update(x, x.copy(), w, cache_seqlens=np.array([0, -1])), ValueError,
     r"cache_seqlens\[1\]: expected at least 0, got -1"),
    (lambda x, w: ops.causal_conv1d_varlen_states(x[0], np.array([0, 7, 3]), 3), ValueError,
     r"cu_seqlens\[1\]: expected 0 to 6, got 7"),
    (lambda x, w: ops.causal_conv1d_varlen_states(x[0], np.array([1, 3]), 3), ValueError,
     r"cu_seqlens\[0\]: expected 0, got 1"),
    (lambda x, w: ops.causal_conv1d_varlen_states(x[0], np.array([0, 3]), -1), ValueError,
     "state_len: expected at least 0, got -1"),
])
def test_bad_arguments(call, error, message):
    values, _ = rounded(conv_inputs(), "float32")
    with pytest.raises(error, match=message):
        call(values["x"], values["weight"])
