"""Threads of the operations."""

from adder import _core
from adder.ops._conv import at_least


def set_num_threads(n: int) -> None:
    """Sets how many threads a large call may use, the calling one included.

    Args:
        n: 1 to 1024; 0 for one per CPU that this process may use, which is the default.

    Results do not depend on it, to the bit.
    """
    at_least("set_num_threads", "n", n, 0)
    if n > 1024:
        raise ValueError(f"set_num_threads: n: expected 0 to 1024, got {n}")
    _core.set_num_threads(n)


def get_num_threads() -> int:
    """How many threads a large call may use."""
    return _core.get_num_threads()
