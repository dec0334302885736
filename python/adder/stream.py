"""The pieces of an answer, as they come."""

from __future__ import annotations

import math
from typing import Optional

from adder import _core
from adder.generation import Generation, generation_of, without_blank


class Stream:
    """An iterator over pieces of text. Also a context manager, which closes it."""

    def __init__(
        self,
        core: _core.Model,
        sequence: _core.Sequence,
        request: _core.Request,
        drop_blank: bool = False,
    ) -> None:
        self._core = core
        self._sequence: Optional[_core.Sequence] = sequence
        self._request = request
        self._drop_blank = drop_blank  # that the text begins with
        self._at_start = True
        self._generation: Optional[Generation] = None

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> str:
        while True:
            sequence = self._sequence  # another thread may close the stream meanwhile
            if sequence is None or sequence.done:
                self._end()
                raise StopIteration
            piece = sequence.advance(math.inf, True, None)
            if piece and self._at_start:
                self._at_start = False
                piece = without_blank(piece, self._drop_blank)
            if piece:
                return piece

    def _end(self) -> None:
        sequence, self._sequence = self._sequence, None
        if sequence is not None:
            self._generation = generation_of(sequence, self._core, self._request, self._drop_blank)

    @property
    def generation(self) -> Generation:
        """The whole answer. Raises ValueError before the last piece has been read."""
        sequence = self._sequence
        if sequence is not None and sequence.done:
            self._end()
        if self._generation is None:
            raise ValueError("stream: expected it to be read to its end, or it was closed")
        return self._generation

    def close(self) -> None:
        """Ends the request. What it held is free for others; no more pieces come, also where another
        thread is waiting for one."""
        sequence, self._sequence = self._sequence, None
        if sequence is not None:
            sequence.cancel()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
