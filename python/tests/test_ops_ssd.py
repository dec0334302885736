"""mamba_chunk_scan_combined against the recurrence in float64."""
import numpy as np
import ops_reference as reference
import pytest
from ops_inputs import KINDS, LAYOUTS, Random, lay_out, rounded
from ops_reference import close

from adder import ops


def ssd_inputs(batch=2, seqlen=70, nheads=4, headdim=8, dstate=16, ngroups=2, seed=0):
    r = Random(seed)
    return dict(x=r(batch, seqlen, nheads, headdim), dt=r(batch, seqlen, nheads), A=r.decay(nheads),
                B=r(batch, seqlen, ngroups, dstate), C=r(batch, seqlen, ngroups, dstate), D=r(nheads),
                z=r(batch, seqlen, nheads, headdim), dt_bias=r(nheads),
                initial_states=r(batch, nheads, headdim, dstate))


def check_ssd(values, kind="float32", chunk_size=64, dt_softplus=True, **options):
    arrays, exact = rounded(values, kind)
    want, want_final = reference.mamba_chunk_scan(**exact, dt_softplus=dt_softplus, **options)
    got, final = ops.mamba_chunk_scan_combined(
        **arrays, chunk_size=chunk_size, dt_softplus=dt_softplus, return_final_states=True, **options)
    assert str(got.dtype) == kind and type(got) is type(arrays["x"])
    close(got, want)
    assert str(final.dtype).endswith("float32")
    close(final, want_final, "float32")
    return got, final


@pytest.mark.parametrize("kind", KINDS)
def test_dtypes(kind):
    check_ssd(ssd_inputs(), kind)


@pytest.mark.parametrize("seqlen", [1, 5, 48, 70, 119, 203])
def test_chunk_size_changes_nothing(seqlen):
    first = check_ssd(ssd_inputs(seqlen=seqlen), chunk_size=16)
    for chunk_size in (1, 17, 63, 256):
        for got, want in zip(check_ssd(ssd_inputs(seqlen=seqlen), chunk_size=chunk_size), first):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("nheads, headdim, dstate, ngroups", [(1, 1, 1, 1), (16, 4, 5, 4), (12, 64, 128, 1),
                                                              (6, 7, 33, 3), (2, 1, 64, 2), (20, 5, 16, 1)])
def test_shapes(nheads, headdim, dstate, ngroups):
    check_ssd(ssd_inputs(1, 150, nheads, headdim, dstate, ngroups))


@pytest.mark.parametrize("without", ["D", "z", "dt_bias", "initial_states"])
def test_optional_operands(without):
    check_ssd({**ssd_inputs(), without: None})


def test_D_for_every_channel():
    check_ssd({**ssd_inputs(), "D": Random(1)(4, 8)})


@pytest.mark.parametrize("dt_limit", [(0.0, np.inf), (0.001, 0.1), (0.05, 0.05)])
@pytest.mark.parametrize("dt", [100.0, -100.0, 0.0])
def test_steps_are_clamped_after_softplus(dt, dt_limit):
    check_ssd({**ssd_inputs(), "dt": np.full((2, 70, 4), dt)}, dt_limit=dt_limit)


def test_steps_and_A_of_either_sign():
    values = ssd_inputs(seqlen=40)
    check_ssd({**values, "dt": 0.1 * values["dt"], "dt_bias": None}, dt_softplus=False, dt_limit=(-1.0, 1.0))
    check_ssd({**values, "A": np.array([0.01, -1.0, 0.0, -2.0])})


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_large_decays_stay_finite(scale):
    values = ssd_inputs(seqlen=256)
    got, _ = check_ssd({**values, "A": -scale * np.ones(4), "dt": np.full((2, 256, 4), 6.0)})
    assert np.isfinite(got).all()


IDS = [[0] * 10 + [1] * 5 + [2] * 22 + [-1] * 33, [5] + [6] * 2 + [5] * 67, [-1] * 3 + [0] * 66 + [1],
       list(range(70)), [-1] * 70, [0] * 64 + [3] * 6, [3] * 69 + [0]]


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("initial", [False, True])
def test_packed_sequences(ids, initial):
    values = ssd_inputs()
    if not initial:
        values["initial_states"] = None
    seq_idx = np.array([ids, [0] * 70], "i4")
    got, _ = check_ssd(values, seq_idx=seq_idx)
    arrays, _ = rounded(values, "float32")
    for number, (begin, end, name) in enumerate(s for s in reference.segments(ids) if s[2] >= 0):
        cut = {k: v[:1, begin:end] if v is not None and v.shape[:2] == (2, 70) else v
               for k, v in arrays.items()}
        state = cut.pop("initial_states")
        alone = ops.mamba_chunk_scan_combined(
            **cut, chunk_size=64, dt_softplus=True,
            initial_states=state[:1] if initial and number == 0 else None)
        np.testing.assert_array_equal(got[:1, begin:end], alone)  # chunks start with the sequence
    np.testing.assert_array_equal(got[0][np.array(ids) < 0], 0)


@pytest.mark.parametrize("states", ["none", "first", "each"])
@pytest.mark.parametrize("with_seq_idx", [False, True])
def test_cu_seqlens(states, with_seq_idx):
    lengths = [10, 5, 0, 22]
    cu_seqlens = np.cumsum([0] + lengths).astype("i4")
    values, _ = rounded(ssd_inputs(batch=1), "float32")
    initial = Random(2)(4, 4, 8, 16).astype("f")
    values["initial_states"] = {"none": None, "first": initial[:1], "each": initial}[states]
    seq_idx = np.repeat([0, 1, 2, 3, -1], lengths + [33])[None]
    got, final, varlen = ops.mamba_chunk_scan_combined(
        **values, chunk_size=8, dt_softplus=True, cu_seqlens=cu_seqlens, return_final_states=True,
        return_varlen_states=True, seq_idx=seq_idx if with_seq_idx else None)
    for i, (begin, end) in enumerate(zip(cu_seqlens, cu_seqlens[1:])):
        cut = {k: v[:, begin:end] if v is not None and v.shape[:2] == (1, 70) else v
               for k, v in values.items()}
        given = states == "each" or (states == "first" and i == 0)
        cut["initial_states"] = initial[i:i + 1] if given else None
        want, want_state = ops.mamba_chunk_scan_combined(**cut, chunk_size=8, dt_softplus=True,
                                                         return_final_states=True)
        np.testing.assert_array_equal(got[:, begin:end], want)
        np.testing.assert_array_equal(varlen[i:i + 1], want_state)
    np.testing.assert_array_equal(got[:, 37:], 0)
    np.testing.assert_array_equal(final[0], varlen[3])


@pytest.mark.parametrize("cuts", [[64, 128, 192], [1, 37, 137], [255], list(range(1, 256))])
def test_pieces_equal_one_pass(cuts):
    values, _ = rounded(ssd_inputs(seqlen=256), "float32")
    whole, last = ops.mamba_chunk_scan_combined(**values, chunk_size=64, dt_softplus=True,
                                                return_final_states=True)
    state, pieces = values.pop("initial_states"), []
    for begin, end in zip([0] + cuts, cuts + [256]):
        cut = {k: v[:, begin:end] if v.shape[:2] == (2, 256) else v for k, v in values.items()}
        piece, state = ops.mamba_chunk_scan_combined(**cut, chunk_size=64, dt_softplus=True,
                                                     initial_states=state, return_final_states=True)
        pieces.append(piece)
    got = np.concatenate(pieces, axis=1)
    if all(c % 64 == 0 for c in cuts):  # where chunks begin: the same sums
        np.testing.assert_array_equal(got, whole)
        np.testing.assert_array_equal(state, last)
    else:  # sums in another order
        close(got, whole)
        close(state, last)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    values, exact = rounded(ssd_inputs(), "float32")
    want, want_final = reference.mamba_chunk_scan(**exact, dt_softplus=True)
    laid_out = {k: lay_out(v, layout) for k, v in values.items()}
    got, final = ops.mamba_chunk_scan_combined(**laid_out, chunk_size=64, dt_softplus=True,
                                               return_final_states=True)
    close(got, want)
    close(final, want_final)


@pytest.mark.parametrize("sizes", [dict(batch=0), dict(seqlen=0), dict(nheads=0), dict(headdim=0),
                                   dict(dstate=0)])
def test_zero_sizes(sizes):
    check_ssd(ssd_inputs(**sizes))


@pytest.mark.parametrize("change, message", [
    (dict(dt=np.zeros((2, 70, 3), "f")), r"dt: expected shape \(2, 70, 4\), got \(2, 70, 3\)"),
    (dict(B=np.zeros((2, 70, 3, 16), "f"), C=np.zeros((2, 70, 3, 16), "f")),
     "B: expected a number of groups that divides nheads = 4, got 3"),
    (dict(D=np.zeros((4, 7), "f")), r"D: expected shape \(4, 8\), got \(4, 7\)"),
    (dict(chunk_size=0), "chunk_size: expected at least 1, got 0"),
    (dict(dt_limit=(1.0, 0.5)), r"dt_limit: expected \(low, high\) with low <= high, got \(1, 0.5\)"),
    (dict(dt_limit=3.0), r"dt_limit: expected \(low, high\), got 3.0"),
    (dict(dt_limit=(0.0, float("nan"))), "dt_limit: expected"),
    (dict(cu_seqlens=np.array([0, 70])), "x: expected a batch of 1 together with cu_seqlens, got 2"),
    (dict(return_varlen_states=True), "cu_seqlens: expected 1 axes, got None"),
    (dict(initial_states=np.zeros((3, 4, 8, 16), "f")), r"initial_states: expected shape \(2, 4, 8, 16\)"),
])
def test_bad_values(change, message):
    values, _ = rounded(ssd_inputs(), "float32")
    with pytest.raises(ValueError, match="mamba_chunk_scan_combined: " + message):
        ops.mamba_chunk_scan_combined(**{**values, "chunk_size": 64, **change})


def test_state_dtype_is_accepted():
    values, _ = rounded(ssd_inputs(), "float32")
    want = ops.mamba_chunk_scan_combined(**values, chunk_size=64)
    for dtype in (None, np.float32, np.dtype("float16"), "bfloat16"):
        got = ops.mamba_chunk_scan_combined(**values, chunk_size=64, state_dtype=dtype)
        np.testing.assert_array_equal(got, want)
    for wrong in (np.int32, 5):
        with pytest.raises(TypeError, match="mamba_chunk_scan_combined: state_dtype: expected None or one of float32"):
            ops.mamba_chunk_scan_combined(**values, chunk_size=64, state_dtype=wrong)


def test_state_dtype_of_torch():
    torch = pytest.importorskip("torch")
    values, _ = rounded(ssd_inputs(), "torch.float32")
    want = ops.mamba_chunk_scan_combined(**values, chunk_size=64)
    got = ops.mamba_chunk_scan_combined(**values, chunk_size=64, state_dtype=torch.bfloat16)
    assert torch.equal(got, want)
