"""Conversations between two requests."""

from __future__ import annotations

import os
from typing import Callable, List, Optional, Tuple, Union

import numpy as np

from adder import _checks, _core

# length, the file's bytes, tokens as <i4, (tokens, whether they were generated) of each stretch; the
# last two are empty where not all of its tokens are known
_Pickled = Tuple[int, bytes, bytes, List[Tuple[int, bool]]]


class State:
    """A conversation that is parked in memory: the state of a Mamba model after some tokens.

    A State is a value: nothing changes it. What goes on from it gives a new one, so it can be
    continued in several ways, from several threads; `fork` is only another name for the same
    value. It takes ``nbytes`` of memory, however long the conversation, and no slot of the engine.

    They come from ``model.state()`` (nothing processed), ``model.feed()``, ``model.load_state()``
    and ``generation.state``. Pickled states come back without a model: they belong to the first one
    that uses them, which must be the same as before.
    """

    def __init__(self, core: Optional[_core.State], pickled: Optional[_Pickled] = None) -> None:
        if pickled is None and not isinstance(core, _core.State):
            raise TypeError("State: expected one of model.state(), model.feed() or model.load_state()")
        self._core = core
        self._pickled = pickled

    def __repr__(self) -> str:
        return f"<adder.State: {self.length} tokens>"

    def __len__(self) -> int:
        return self.length

    @property
    def length(self) -> int:
        """How many tokens it has seen."""
        return self._pickle()[0] if self._core is None else self._core.length

    @property
    def tokens(self) -> np.ndarray:
        """int32, read-only: those tokens; of a state from a file the newest 1024 at most."""
        return self._bound().tokens

    @property
    def nbytes(self) -> int:
        return self._bound().nbytes

    @property
    def rollback_limit(self) -> int:
        """How many tokens `rollback` can take back: all but those before the state was in a file."""
        return self._bound().known

    @property
    def logits(self) -> Optional[np.ndarray]:
        """(vocab_rows,) float32, read-only: after its last token; None where nobody asked for them."""
        return self._bound().logits

    def conv(self, layer: int) -> np.ndarray:
        """(channels, d_conv - 1) float32: the last inputs of the layer's convolution, oldest first.

        Channels are d_inner for Mamba-1; x, B and C for Mamba-2. A read-only view without a copy,
        in memory (d_conv - 1, channels). It is what mamba-ssm keeps as conv_state without the oldest
        of its d_conv inputs, which no later output needs. Raises ValueError for a layer that there
        is not, and for a state that has seen nothing.
        """
        return self._bound().conv(_checks.integer("layer", layer, -(2**31), 2**31 - 1))

    def ssm(self, layer: int) -> np.ndarray:
        """float32: (d_inner, d_state) for Mamba-1, (n_heads, headdim, d_state) for Mamba-2.

        mamba-ssm's ssm_state. A read-only view without a copy; Mamba-1's is (d_state, d_inner) in
        memory. Raises ValueError as `conv` does.
        """
        return self._bound().ssm(_checks.integer("layer", layer, -(2**31), 2**31 - 1))

    def fork(self) -> "State":
        """Another conversation that goes on from here. Copies nothing."""
        return State(self._core, self._pickled)

    __copy__ = fork

    def __deepcopy__(self, memo: dict) -> "State":
        return self.fork()

    def rollback(self, tokens: int) -> "State":
        """The state `tokens` tokens ago, to the bit, as if it had never seen them.

        What there was before is taken from a state between two requests that is still in memory,
        and the tokens since are processed again, the way in which they came.
        Raises ValueError when it has not that many.
        """
        core = self._bound()
        count = _checks.integer("tokens", tokens, 0, 2**62)
        return State(core.roll_back(count))

    def save(self, path: Union[str, os.PathLike]) -> None:
        """Writes the file that ``adder run --state-in`` and `Model.load_state` read.

        It replaces a file whole or not at all. Raises OSError.
        """
        self._bound().save(_checks.path("path", path))

    def __reduce__(self) -> Tuple[Callable[..., "State"], _Pickled]:
        return State._unpickle, self._pickle()

    def _pickle(self) -> _Pickled:
        if self._core is None:
            assert self._pickled is not None
            return self._pickled
        core = self._core
        if core.length == 0:
            return 0, b"", b"", []
        whole = core.known == core.length
        tokens = core.tokens.astype("<i4").tobytes() if whole else b""
        return core.length, core.image(), tokens, core.stretches if whole else []

    @staticmethod
    def _unpickle(
        length: int, image: bytes, tokens: bytes, stretches: List[Tuple[int, bool]]
    ) -> "State":
        return State(None, (length, image, tokens, stretches))

    def _bound(self) -> _core.State:
        if self._core is None:
            raise ValueError(
                "state: expected one of a model, got one that was pickled: use it with the model "
                "first, as model.load_state(state)"
            )
        return self._core

    def bind(self, model: _core.Model, cancel: Optional[_core.Cancel] = None) -> "State":
        """This state for `model`, which must be the one that made it. Raises ValueError."""
        if self._core is not None and self._core.model is model:
            return self
        length, image, tokens, stretches = self._pickle()
        if length == 0:
            return State(_core.State(model))
        ids = np.frombuffer(tokens, "<i4").tolist()
        return State(model.restore_state(image, ids, stretches, cancel))
