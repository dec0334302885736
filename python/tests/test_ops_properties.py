"""Properties that hold for any operands, drawn by hypothesis.

1. The layout in memory is nothing to the result: a view with any strides gives the bits of its copy,
   for any values, NaN, infinities and huge numbers included.
2. Operands that do not fit raise ValueError or TypeError, or happen to fit; the process survives.
"""
import mmap

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_ops_arrays import CALLS

from adder import ops

SETTINGS = dict(deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True)
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e38, -1e38, 1e-38, 1e-45, 88.0, -104.0]


@st.composite
def problems(draw):
    """An operation and its operands: sizes from 0 on."""
    name = draw(st.sampled_from(sorted(CALLS)))
    size = lambda low=0, high=5: draw(st.integers(low, high))  # noqa: E731
    batch, groups, state, width = size(high=3), size(1, 2), size(), size(1, 5)
    seqlen = draw(st.sampled_from([0, 1, 2, 3, 17, 66, 130]))
    heads = groups * size(high=3)
    dim, headdim = groups * size(), size()
    if name == "selective_scan_fn":
        row = (batch, dim, seqlen)
        shapes = dict(u=row, delta=row, A=(dim, state), B=(batch, groups, state, seqlen),
                      C=(batch, state, seqlen), D=(dim,), z=row, delta_bias=(dim,))
    elif name == "selective_state_update":
        wide = draw(st.sampled_from([(dim,), (heads, headdim)]))
        shapes = dict(state=(batch, *wide, state), x=(batch, *wide), dt=(batch, *wide), A=(*wide, state),
                      B=(batch, groups, state), C=(batch, groups, state), D=wide, dt_bias=wide)
    elif name == "mamba_chunk_scan_combined":
        x = (batch, seqlen, heads, headdim)
        shapes = dict(x=x, dt=(batch, seqlen, heads), A=(heads,), B=(batch, seqlen, groups, state),
                      C=(batch, seqlen, groups, state), D=(heads,), z=x, dt_bias=(heads,),
                      initial_states=(batch, heads, headdim, state))
    elif name == "causal_conv1d_fn":
        shapes = dict(x=(batch, dim, seqlen), weight=(dim, width), bias=(dim,),
                      initial_states=(batch, dim, width - 1))
    elif name == "causal_conv1d_update":
        shapes = dict(x=(batch, dim, size(high=3)), conv_state=(batch, dim, width - 1 + size(high=2)),
                      weight=(dim, width), bias=(dim,))
    elif name == "mamba_inner_fn":
        rank, d_model = size(), size()
        shapes = dict(xz=(batch, 2 * dim, seqlen), conv1d_weight=(dim, 1, width), conv1d_bias=(dim,),
                      x_proj_weight=(rank + 2 * state, dim), delta_proj_weight=(dim, rank),
                      out_proj_weight=(d_model, dim), out_proj_bias=(d_model,), A=(dim, state))
    elif name == "mamba_split_conv1d_scan_combined":
        heads, headdim = 2 * max(heads, 1), max(headdim, 1)  # the operands imply the sizes; 2 groups
        channels = heads * headdim + 4 * state
        shapes = dict(zxbcdt=(batch, seqlen, heads * headdim + channels + heads),
                      conv1d_weight=(channels, width), conv1d_bias=(channels,), dt_bias=(heads,), A=(heads,),
                      D=(heads, headdim), rmsnorm_weight=(heads * headdim,))
    else:
        shape = draw(st.sampled_from([(dim,), (batch, dim), (batch, heads, seqlen, dim)]))
        shapes = dict(x=shape, weight=(dim,), bias=(dim,))
        shapes["z" if name == "rmsnorm_fn" else "residual"] = shape
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    wild = draw(st.sampled_from([0.0, 0.0, 0.02, 0.5]))
    values = {}
    for key, shape in shapes.items():
        x = rng.standard_normal(shape)
        x[rng.random(shape) < wild] = rng.choice(SPECIAL)
        with np.errstate(over="ignore"):
            values[key] = (-np.abs(x) if key == "A" and not wild else x).astype(
                draw(st.sampled_from(["float32", "float32", "float16", "float64"])))
    return name, values


@st.composite
def relaid(draw, x):
    """x in memory with other strides: axes in any order, gaps, backwards, odd addresses."""
    order = draw(st.permutations(range(x.ndim)))
    steps = [draw(st.sampled_from([1, 1, 2, 3, -1, -2])) for _ in range(x.ndim)]
    shape = [x.shape[axis] * abs(steps[axis]) for axis in order]
    offset = draw(st.integers(0, 3))
    raw = np.full(int(np.prod(shape)) * x.itemsize + offset, 0x3E, np.uint8)
    memory = raw[offset:].view(x.dtype).reshape(shape).transpose(np.argsort(order))
    view = memory[tuple(slice(None, None, s) for s in steps)]
    view[...] = x
    return view


def run(name, values):
    arrays = {k: v.copy() if k in ("state", "conv_state") and v.flags.c_contiguous else v
              for k, v in values.items()}
    options = dict(CALLS[name][1])
    result = getattr(ops, name)(**arrays, **options)
    results = list(result) if isinstance(result, tuple) else [result]
    return results + [arrays[k] for k in ("state", "conv_state") if k in arrays]


@settings(max_examples=400, **SETTINGS)
@given(st.data())
def test_layout_changes_nothing(data):
    name, values = data.draw(problems())
    want = run(name, values)
    views = {k: data.draw(relaid(v)) for k, v in values.items()}
    for got, expected in zip(run(name, views), want):
        assert got.shape == expected.shape and got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)  # NaN at the same places


def others():
    """What may stand where an operand should."""
    small = st.lists(st.sampled_from([0, 1, 2, 3, 5]), max_size=9)
    huge = st.builds(lambda a, b: a + [1 << 40] + b, small, st.lists(st.just(1), max_size=2))
    dtypes = st.sampled_from(["f", "e", "d", "i4", "i8", "F", "u1", "?", ">f4", "U3", "O"])
    # Stride 0, so that the largest take no memory.
    arrays = st.builds(lambda shape, dtype: np.lib.stride_tricks.as_strided(
        np.zeros(1, dtype), shape, [0] * len(shape), writeable=False), small | huge, dtypes)
    return st.one_of(st.sampled_from([None, 1.5, "text", [1.0], object()]), arrays)


@settings(max_examples=300, **SETTINGS)
@given(st.data())
def test_wrong_operands_are_refused(data):
    name, values = data.draw(problems())
    for _ in range(data.draw(st.integers(1, 2))):
        key = data.draw(st.sampled_from(sorted(values)))
        values[key] = data.draw(others())
    try:
        getattr(ops, name)(**values, **CALLS[name][1])
    except (ValueError, TypeError) as e:
        assert name in str(e)
    except MemoryError:
        pass  # a result of a size that was asked for


def far_apart(x, step):
    """x with the entries of its first axis `step` bytes apart, in memory that is reserved only."""
    no_reserve = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux; its name is new in Python 3.13
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    try:
        memory = mmap.mmap(-1, step * x.shape[0], flags=flags)
    except OSError as e:
        pytest.skip(f"no {step * x.shape[0] >> 30} GB of addresses: {e}")
    first = np.frombuffer(memory, x.dtype, x[0].size).reshape(x[0].shape)
    view = np.lib.stride_tricks.as_strided(first, x.shape, (step, *first.strides))
    view[...] = x
    return view


@pytest.mark.parametrize("name", sorted(CALLS))
def test_offsets_beyond_32_bits(name):
    values = {k: v.astype("f") for k, v in CALLS[name][0]().items() if v is not None}
    if name == "layer_norm_fn":
        values["bias"] = np.zeros(8, "f")
    want = run(name, values)
    for key, x in values.items():
        if x.ndim > 1 and x.shape[0] <= 3:  # rows of a batch; 5 GB of elements, 20 GB of bytes
            values[key] = far_apart(x, 5 << 32)
    for got, expected in zip(run(name, values), want):
        np.testing.assert_array_equal(got, expected)
