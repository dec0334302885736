"""selective_scan_fn and selective_state_update against loops in float64."""
import numpy as np
import ops_reference as reference
import pytest
from ops_inputs import KINDS, LAYOUTS, Random, convert, lay_out, rounded
from ops_reference import close, to_numpy

from adder import ops


def scan_inputs(batch=2, dim=6, seqlen=37, dstate=5, groups=2, seed=0):
    r = Random(seed)
    return dict(u=r(batch, dim, seqlen), delta=r(batch, dim, seqlen), A=r.decay(dim, dstate),
                B=r(batch, groups, dstate, seqlen), C=r(batch, groups, dstate, seqlen), D=r(dim),
                z=r(batch, dim, seqlen), delta_bias=r(dim))


def check_scan(values, kind="float32", state=None, **options):
    arrays, exact = rounded(values, kind)
    want, want_state = reference.selective_scan(**exact, initial_state=state, **options)
    got, got_state = ops.selective_scan_fn(
        **arrays, return_last_state=True, **options,
        initial_state=None if state is None else convert(state, "float32"))
    assert str(got.dtype) == kind and type(got) is type(arrays["u"])
    close(got, want)
    assert str(got_state.dtype).endswith(("float32", "complex64"))
    close(got_state, want_state, "float32")


@pytest.mark.parametrize("softplus", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_scan_dtypes(kind, softplus):
    values = scan_inputs()
    if not softplus:  # steps of either sign would let some states explode, and the bar with them
        values["delta"], values["delta_bias"] = np.abs(values["delta"]), None
    check_scan(values, kind, delta_softplus=softplus)


@pytest.mark.parametrize("batch, dim, seqlen, dstate, groups", [
    (1, 1, 1, 1, 1), (1, 3, 130, 16, 3), (2, 200, 129, 3, 1), (3, 130, 5, 17, 2), (1, 64, 300, 64, 1)])
def test_scan_shapes(batch, dim, seqlen, dstate, groups):
    check_scan(scan_inputs(batch, dim, seqlen, dstate, groups), delta_softplus=True)


@pytest.mark.parametrize("without", ["D", "z", "delta_bias"])
def test_scan_optional_operands(without):
    check_scan({**scan_inputs(), without: None}, delta_softplus=True)


def test_scan_initial_state_equals_one_pass():
    values, _ = rounded(scan_inputs(seqlen=200), "float32")
    whole, last = ops.selective_scan_fn(**values, delta_softplus=True, return_last_state=True)
    state, pieces = None, []
    for begin, end in [(0, 1), (1, 70), (70, 198), (198, 200)]:
        cut = {k: v[..., begin:end] if v.shape[-1] == 200 else v for k, v in values.items()}
        piece, state = ops.selective_scan_fn(**cut, delta_softplus=True, return_last_state=True,
                                             initial_state=state)
        pieces.append(piece)
    # The scan is sequential: the same additions in the same order.
    np.testing.assert_array_equal(np.concatenate(pieces, axis=-1), whole)
    np.testing.assert_array_equal(state, last)


@pytest.mark.parametrize("form", ["no groups", "constant B", "constant C", "constant both", "groups"])
@pytest.mark.parametrize("is_complex", [False, True])
def test_scan_forms_of_B_and_C(form, is_complex):
    r, values = Random(1), scan_inputs()
    if is_complex:
        values["A"] = values["A"] + 1j * r(*values["A"].shape)
        values["B"], values["C"] = (r(2, 2, 5, 74) for _ in "BC")
    if form == "no groups":
        values["B"], values["C"] = values["B"][:, 0], values["C"][:, 1]
    for name in "BC":
        if form in ("constant both", "constant " + name):
            values[name] = r.complex(6, 5) if is_complex else r(6, 5)
    state = r.complex(2, 6, 5) if is_complex else r(2, 6, 5)
    check_scan(values, delta_softplus=True, state=state.astype("complex64" if is_complex else "f"))


def test_scan_groups_of_B_and_C_may_differ():
    values = scan_inputs(dim=12, groups=2)
    values["C"] = Random(2)(2, 3, 5, 37)
    check_scan(values, delta_softplus=True)


def test_scan_takes_positive_A():
    values = scan_inputs()
    values["A"] = np.abs(values["A"]) * 0.01
    check_scan(values, delta_softplus=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_scan_layouts(layout):
    values, exact = rounded(scan_inputs(seqlen=70), "float32")
    want, want_state = reference.selective_scan(**exact, delta_softplus=True)
    laid_out = {k: lay_out(v, layout) for k, v in values.items()}
    got, state = ops.selective_scan_fn(**laid_out, delta_softplus=True, return_last_state=True)
    close(got, want)
    close(state, want_state)


@pytest.mark.parametrize("batch, dim, seqlen, dstate", [(0, 4, 5, 3), (2, 0, 5, 3), (2, 4, 0, 3),
                                                        (2, 4, 5, 0)])
def test_scan_zero_sizes(batch, dim, seqlen, dstate):
    check_scan(scan_inputs(batch, dim, seqlen, dstate, groups=1), delta_softplus=True)


def test_scan_extreme_steps_stay_finite():
    values = scan_inputs()
    values["delta"] = np.where(values["delta"] > 0, 100.0, -100.0)
    values["A"] *= 1e4
    check_scan(values, delta_softplus=True)


def test_scan_keeps_nan_in_its_channel():
    values, _ = rounded(scan_inputs(), "float32")
    clean = ops.selective_scan_fn(**values, delta_softplus=True)
    values["u"][1, 2, 7] = np.nan
    got = ops.selective_scan_fn(**values, delta_softplus=True)
    assert np.isnan(got[1, 2, 7:]).all()
    got[1, 2, 7:] = clean[1, 2, 7:]
    np.testing.assert_array_equal(got, clean)


@pytest.mark.parametrize("change, message", [
    (dict(delta=np.zeros((2, 6, 36), "f")),
     r"selective_scan_fn: delta: expected shape \(2, 6, 37\), got \(2, 6, 36\)"),
    (dict(A=np.zeros((5, 5), "f")), r"A: expected shape \(6, 5\), got \(5, 5\)"),
    (dict(B=np.zeros((2, 4, 5, 37), "f")), r"B: expected a number of groups that divides dim = 6, got 4"),
    (dict(u=np.zeros((2, 6), "f")), r"u: expected 3 axes, got \(2, 6\) float32"),
    (dict(D=np.zeros(6, "i4")), r"D: expected float32, float16, bfloat16 or float64, got int32"),
    (dict(z=np.zeros((2, 6, 37), "F")), r"z: expected float32.*got complex64"),
    (dict(initial_state=np.zeros((2, 6, 4), "f")), r"initial_state: expected shape \(2, 6, 5\)"),
])
def test_scan_bad_values(change, message):
    values, _ = rounded(scan_inputs(), "float32")
    with pytest.raises(ValueError, match=message):
        ops.selective_scan_fn(**{**values, **change})


@pytest.mark.parametrize("u, got", [(None, "None"), ([1.0], "list"), (3, "int"),
                                    (np.zeros((2, 6, 37), ">f4"), ">f4"),
                                    (np.zeros((2, 6, 37), bool), "bool")])
def test_scan_bad_types(u, got):
    values, _ = rounded(scan_inputs(), "float32")
    with pytest.raises(TypeError, match=f"selective_scan_fn: u: expected .*, got {got}"):
        ops.selective_scan_fn(**{**values, "u": u})


def update_inputs(batch=3, heads=None, dim=10, dstate=7, groups=2, slots=None, seed=0):
    r = Random(seed)
    wide = (dim,) if heads is None else (heads, dim)
    return dict(state=r(slots or batch, *wide, dstate), x=r(batch, *wide), dt=r(batch, *wide),
                A=r.decay(*wide, dstate), B=r(batch, groups, dstate), C=r(batch, groups, dstate),
                D=r(*wide), z=r(batch, *wide), dt_bias=r(*wide))


def check_update(values, kind="float32", indices=None, **options):
    arrays, exact = rounded(values, kind)
    want_state, want = reference.selective_state_update(**exact, dt_softplus=True, indices=indices)
    got = ops.selective_state_update(**arrays, dt_softplus=True, **options)
    assert str(got.dtype) == kind and type(got) is type(arrays["x"])
    close(got, want)
    close(arrays["state"], want_state)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("heads", [None, 4])
def test_update_dtypes(kind, heads):
    check_update(update_inputs(heads=heads), kind)


@pytest.mark.parametrize("batch, heads, dim, dstate, groups", [
    (1, None, 1, 1, 1), (2, None, 200, 16, 1), (5, None, 96, 3, 3), (2, 6, 5, 9, 3), (1, 2, 130, 64, 1)])
def test_update_shapes(batch, heads, dim, dstate, groups):
    check_update(update_inputs(batch, heads, dim, dstate, groups))


def tied_inputs(batch=3, nheads=8, headdim=4, dstate=5, groups=2, kind="float32", slots=None):
    """Mamba-2's: dt, A, dt_bias and D are one number for a head, expanded."""
    r, values = Random(3), update_inputs(batch, nheads, headdim, dstate, groups, slots)
    values, _ = rounded(values, kind)

    def expanded(x, shape):
        x = convert(x, kind)
        return x.expand(shape) if hasattr(x, "expand") else np.broadcast_to(x, shape)

    values["dt"] = expanded(r(batch, nheads, 1), (batch, nheads, headdim))
    values["A"] = expanded(r.decay(nheads, 1, 1), (nheads, headdim, dstate))
    values["D"], values["dt_bias"] = (expanded(r(nheads, 1), (nheads, headdim)) for _ in "Db")
    return values


@pytest.mark.parametrize("kind", KINDS)
def test_update_tied_heads(kind):
    values = tied_inputs(kind=kind)
    want_state, want = reference.selective_state_update(**values, dt_softplus=True)
    got = ops.selective_state_update(**values, dt_softplus=True)
    close(got, want)
    close(values["state"], want_state)


def test_update_tied_heads_with_growing_states():
    for change in (dict(A=0.1), dict(dt=-0.3)):  # A above 0; steps below 0, without softplus
        values = tied_inputs()
        for name, value in change.items():
            values[name] = np.broadcast_to(np.float32(value), values[name].shape)
        values["dt_bias"] = None
        want_state, want = reference.selective_state_update(**values)
        close(ops.selective_state_update(**values), want)
        close(values["state"], want_state)


@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("tied", [False, True])
def test_update_indices(index_dtype, tied):
    indices = np.array([4, -1, 0], index_dtype)
    values = tied_inputs(slots=6) if tied else rounded(update_inputs(slots=6), "float32")[0]
    before = values["state"].copy()
    want_state, want = reference.selective_state_update(**values, indices=indices)
    got = ops.selective_state_update(**values, state_batch_indices=indices)
    close(got, want)
    close(values["state"], want_state)
    np.testing.assert_array_equal(got[1], 0)
    for slot in (1, 2, 3, 5):  # exact: nobody may touch them
        np.testing.assert_array_equal(values["state"][slot], before[slot])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("heads", [None, 4])
def test_update_layouts(layout, heads):
    values, exact = rounded(update_inputs(heads=heads), "float32")
    want_state, want = reference.selective_state_update(**exact)
    laid_out = {k: lay_out(v, layout) for k, v in values.items()}
    close(ops.selective_state_update(**laid_out), want)
    close(laid_out["state"], want_state)


def test_steps_equal_the_scan():
    values, _ = rounded(scan_inputs(batch=2, dim=70, seqlen=40), "float32")
    want, want_state = ops.selective_scan_fn(**values, delta_softplus=True, return_last_state=True)
    state = np.zeros_like(want_state)
    for t in range(40):
        at = {k: np.ascontiguousarray(values[k][..., t]) for k in ("u", "delta", "B", "C", "z")}
        y = ops.selective_state_update(state, at["u"], at["delta"], values["A"], at["B"], at["C"],
                                       values["D"], at["z"], values["delta_bias"], True)
        np.testing.assert_array_equal(y, want[..., t])  # one kernel, one order
    np.testing.assert_array_equal(state, want_state)


@pytest.mark.parametrize("change, message", [
    (dict(state_batch_indices=np.array([0, 1, 3])), r"state_batch_indices\[2\]: expected -1 to 2, got 3"),
    (dict(state_batch_indices=np.array([0, 2, 2])), r"expected distinct entries, got 2 twice"),
    (dict(state_batch_indices=np.zeros(3, "f")), r"state_batch_indices: expected int32 or int64, got float32"),
    (dict(state=np.zeros((4, 10, 7), "f")), r"state_batch_indices: expected it with state of 4 slots"),
    (dict(state=np.broadcast_to(np.float32(0), (3, 10, 7))), r"state: expected a writeable array"),
    (dict(x=np.zeros((3, 9), "f")), r"x: expected shape \(3, 10\), got \(3, 9\)"),
    (dict(C=np.zeros((3, 1, 7), "f")), r"C: expected shape \(3, 2, 7\), got \(3, 1, 7\)"),
])
def test_update_bad_values(change, message):
    values, _ = rounded(update_inputs(), "float32")
    with pytest.raises(ValueError, match=message):
        ops.selective_state_update(**{**values, **change})


def test_zero_slots_of_a_batch_of_none():
    values, _ = rounded(update_inputs(batch=0, slots=2), "float32")
    before = values["state"].copy()
    assert ops.selective_state_update(**values, state_batch_indices=np.zeros(0, int)).shape == (0, 10)
    np.testing.assert_array_equal(values["state"], before)
