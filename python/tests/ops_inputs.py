"""Seeded inputs in every kind, dtype and layout that the operations take."""
import numpy as np
import pytest

KINDS = ["float32", "float16", "float64", "torch.float32", "torch.float16", "torch.bfloat16"]
LAYOUTS = ["contiguous", "transposed", "gaps", "reversed", "unaligned"]


def convert(values, kind):
    """values (NumPy float64) as an array or tensor of a kind, rounded; complex stays complex."""
    values = np.asarray(values)
    if not kind.startswith("torch."):
        return values.astype("complex64" if np.iscomplexobj(values) else kind)
    torch = pytest.importorskip("torch")
    if np.iscomplexobj(values):
        return torch.from_numpy(values.astype("complex64"))
    return torch.from_numpy(np.ascontiguousarray(values, "float64")).to(getattr(torch, kind[6:]))


def lay_out(x, layout):
    """The same values in other memory."""
    x = np.asarray(x)
    if layout == "transposed":
        return np.ascontiguousarray(x.T).T
    if layout == "gaps":
        wide = np.full(tuple(2 * n for n in x.shape), np.nan, x.dtype)
        view = wide[tuple(slice(None, None, 2) for _ in x.shape)]
    elif layout == "reversed":
        view = np.empty_like(x)[tuple(slice(None, None, -1) for _ in x.shape)]
    elif layout == "unaligned":
        raw = np.zeros(x.size * x.itemsize + 1, np.uint8)
        view = raw[1:].view(x.dtype).reshape(x.shape)
    else:
        return np.ascontiguousarray(x)
    view[...] = x
    return view


class Random:
    """Normal numbers, each call the next ones."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def __call__(self, *shape):
        return self.rng.standard_normal(shape)

    def complex(self, *shape):
        return self(*shape) + 1j * self(*shape)

    def decay(self, *shape):
        """A = -exp(normal) < 0."""
        return -np.exp(self(*shape))


def rounded(values, kind):
    """values in a kind, and what that kind made of them, in float64."""
    from ops_reference import to_numpy
    converted = {k: None if v is None else convert(v, kind) for k, v in values.items()}
    return converted, {k: None if v is None else to_numpy(v) for k, v in converted.items()}
