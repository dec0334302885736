"""Models: from a checkpoint to text."""

from __future__ import annotations

import os
from typing import Optional, Union

from adder import _core


class Model:
    """A loaded model. Make one with :func:`load`."""

    def __init__(self, core: _core.Model) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<adder.Model on {self._core.description}>"

    def generate(
        self,
        prompt: str,
        *,
        max_tokens: int = 128,
        temperature: float = 0.6,
        top_k: int = 0,
        top_p: float = 0.95,
        seed: int = 0,
    ) -> str:
        """The text that follows `prompt`, as `adder run` writes it."""
        sampling = _core.SamplingOptions(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        return self._core.generate(prompt, max_tokens, sampling)


def load(
    model: Optional[Union[str, os.PathLike]] = None,
    *,
    device: str = "cpu",
    threads: int = 0,
    pin: bool = True,
) -> Model:
    """Loads a model: a directory, a file, the name of a pulled repository, or None for the demo model.

    threads: 0 takes one per CPU that this process may use. Raises ValueError naming the file and the
    field where one is wrong, OSError where it cannot be read.
    """
    path = "" if model is None else os.fspath(model)
    return Model(_core.Model(path, device, threads, pin))
