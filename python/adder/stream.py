"""The pieces of an answer, as they come."""

from __future__ import annotations

import math
from typing import Optional

from adder import _core
from adder.generation import Generation, generation_of


class Stream:
    """An iterator over pieces of text. Also a context manager, which closes it."""

    def __init__(self, core: _core.Model, sequence: _core.Sequence, request: _core.Request) -> None:
        self._core = core
        self._sequence: Optional[_core.Sequence] = sequence
        self._request = request
        self._generation: Optional[Generation] = None

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> str:
        if self._sequence is None or self._sequence.done:
            self._end()
            raise StopIteration
        piece = self._sequence.advance(math.inf, True, None)
        if not piece:  # it is done
            self._end()
            raise StopIteration
        return piece

    def _end(self) -> None:
        if self._sequence is not None:
            self._generation = generation_of(self._sequence, self._core, self._request)
            self._sequence = None

    @property
    def generation(self) -> Generation:
        """The whole answer. Raises ValueError before the last piece has been read."""
        if self._sequence is not None and self._sequence.done:
            self._end()
        if self._generation is None:
            raise ValueError("stream: expected it to be read to its end, or it was closed")
        return self._generation

    def close(self) -> None:
        """Ends the request. What it held is free for others; no more pieces come."""
        self._sequence = None

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
