"""How probable a model finds a text."""

from __future__ import annotations

import dataclasses
import math
from typing import List, Optional, Union

import numpy as np

from adder import _core


@dataclasses.dataclass(frozen=True)
class Score:
    """Log-likelihood of a text.

    Attributes
    ----------
    tokens : the ids of the text.
    logprobs : (tokens,) float64, natural logarithms; NaN for a first token that nothing predicts.
    greedy : (tokens,) bool: whether it was the most probable one there.
    bytes : length of the text in UTF-8; None for ids of a model without a tokenizer.
    """

    tokens: List[int]
    logprobs: np.ndarray
    greedy: np.ndarray
    bytes: Optional[int]

    @property
    def total(self) -> float:
        """The sum of `logprobs`, without a first token that nothing predicts."""
        return float(np.sum(self.logprobs[self._first :]))

    @property
    def predicted(self) -> int:
        """How many tokens were predicted: all, or all but the first."""
        return len(self.tokens) - self._first

    @property
    def perplexity(self) -> float:
        """Per token, so it compares models of one tokenizer only. 0 where nothing was predicted."""
        return math.exp(-self.total / self.predicted) if self.predicted else 0.0

    @property
    def bits_per_byte(self) -> Optional[float]:
        """Compares all models; None where `bytes` is not known."""
        if self.bytes is None:
            return None
        return -self.total / math.log(2) / self.bytes if self.bytes else 0.0

    @property
    def _first(self) -> int:
        return int(np.isnan(self.logprobs[0]))


def make_score(
    core: _core.Model,
    text: Union[str, object],
    ids: List[int],
    first_is_predicted: bool,
    nll: np.ndarray,
    best: np.ndarray,
) -> Score:
    """nll, best: of all of `ids` but the first, which belongs to the text unless it is predicted."""
    logprobs, greedy = -nll, best == np.asarray(ids[1:], np.int32)
    if first_is_predicted:
        ids = ids[1:]
    else:
        logprobs, greedy = np.append(np.nan, logprobs), np.append(False, greedy)
    if isinstance(text, str):
        size: Optional[int] = len(text.encode())
    else:
        size = sum(len(core.token_bytes(i)) for i in ids) if core.has_tokenizer else None
    return Score(ids, logprobs, greedy, size)
