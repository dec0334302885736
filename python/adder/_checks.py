"""Arguments: from what callers give to what the engine takes, or an error that names them."""

from __future__ import annotations

import math
import operator
import os
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Union

import numpy as np

Ids = Union[Sequence[int], np.ndarray]


def integer(name: str, value: Any, low: int, high: int) -> int:
    """`value` as an int from low to high. Raises TypeError or ValueError."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}") from None
    if not low <= number <= high:
        raise ValueError(f"{name}: expected {low} to {high}, got {number}")
    return number


def real(name: str, value: Any, low: float, high: float) -> float:
    """`value` as a float from low to high; NaN is not. Raises TypeError or ValueError."""
    if isinstance(value, (bool, str, bytes)):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: expected a number, got {type(value).__name__}") from None
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    if math.isnan(number) or not low <= number <= high:
        raise ValueError(f"{name}: expected a number from {low:g} to {high:g}, got {number:g}")
    return number


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}: expected True or False, got {type(value).__name__}")
    return bool(value)


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a str, got {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{name}: expected text that UTF-8 can express: {error}") from None
    return value


def ids(name: str, value: Any) -> List[int]:
    """Token ids as a list: of any sequence of integers, an array or a tensor of one dimension."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__len__"):
        raise TypeError(f"{name}: expected token ids, got {type(value).__name__}")
    array = np.asarray(value)
    if array.size == 0 and array.ndim == 1:
        return []
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one dimension of token ids, got shape {array.shape}")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers, got dtype {array.dtype}")
    low, high = int(array.min()), int(array.max())
    if low < 0 or high > 2**31 - 1:
        raise ValueError(f"{name}: expected ids from 0 on, got {low if low < 0 else high}")
    return array.tolist()


def is_text_or_ids(name: str, value: Any) -> bool:
    """Whether `value` is one prompt, and not a list of them."""
    if isinstance(value, str):
        return True
    if isinstance(value, np.ndarray):
        return value.ndim == 1
    if isinstance(value, (bytes, Mapping)) or not hasattr(value, "__getitem__"):
        raise TypeError(f"{name}: expected text, token ids or a list of them, got {type(value).__name__}")
    return bool(len(value)) and isinstance(value[0], (int, np.integer))


def strings(name: str, value: Optional[Union[str, Sequence[str]]]) -> List[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [text(name, value)]
    return [text(f"{name}[{i}]", item) for i, item in enumerate(iterable(name, value))]


def iterable(name: str, value: Any) -> Iterable:
    """`value`, which has several items: a single text is none of them."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{name}: expected several, as a list, got {type(value).__name__}")
    return value


def path(name: str, value: Any) -> bytes:
    """A path as the system takes it."""
    try:
        encoded = os.fsencode(value)
    except TypeError:
        raise TypeError(f"{name}: expected a path, got {type(value).__name__}") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"{name}: expected a path that the system can have: {error}") from None
    if b"\0" in encoded:
        raise ValueError(f"{name}: expected a path without NUL, got {value!r}")
    return encoded
