"""Threads of the operations."""

from adder import _core


def set_num_threads(n: int) -> None:
    """Sets how many threads a large call may use, the calling one included.

    Args:
        n: at least 1; 0 for one per CPU that this process may use, which is the default.

    Results do not depend on it, to the bit.
    """
    if n < 0:
        raise ValueError(f"set_num_threads: n: expected at least 0, got {n}")
    _core.set_num_threads(n)


def get_num_threads() -> int:
    """How many threads a large call may use."""
    return _core.get_num_threads()
