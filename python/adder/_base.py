"""What the parts of Model share."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from adder import _checks, _core
from adder.generation import Options, make_request
from adder.state import State
from adder.tokenizer import Tokenizer

Prompt = Union[str, _checks.Ids]


class ModelBase:
    """A loaded model: what is known about it, and how requests to it begin."""

    def __init__(self, core: _core.Model) -> None:
        self._core = core
        self._tokenizer = Tokenizer(core) if core.has_tokenizer else None

    def __repr__(self) -> str:
        return f"<adder.Model {self._core.path}: {self.config['family']} on {self.description}>"

    @property
    def description(self) -> str:
        """Where it computes, e.g. "cpu, AVX2, 2 threads"."""
        return self._core.description

    @property
    def config(self) -> Dict[str, Any]:
        """Sizes by their usual names: family, n_layer, d_model, d_inner, d_state, d_conv,
        vocab_size (ids that can be produced), vocab_rows (columns of logits), ..."""
        return self._core.config

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises ValueError for a model that came without one."""
        if self._tokenizer is None:
            raise ValueError(f"tokenizer: {self._core.path} came without one; give ids instead of text")
        return self._tokenizer

    @property
    def eos_ids(self) -> List[int]:
        """Ids that end a text."""
        return self._core.eos_ids

    @property
    def slots(self) -> int:
        """How many requests take steps together; more are possible, and take turns."""
        return self._core.slots

    @property
    def fingerprint(self) -> str:
        """What states are compared by: a hash of weights and sizes. The first time takes a while."""
        return self._core.fingerprint()

    def _ids(self, name: str, prompt: Prompt, begins: bool) -> List[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(_checks.text(name, prompt), bos=begins)
        return _checks.ids(name, prompt)

    def _start(
        self, name: str, prompt: Prompt, state: Optional[State], options: Options
    ) -> Tuple[_core.Sequence, _core.Request]:
        """Checks everything and starts the request; name: of the prompt, for messages."""
        if state is not None and not isinstance(state, State):
            raise TypeError(f"state: expected an adder.State, got {type(state).__name__}")
        options = {**options, "keep_state": options.get("keep_state", state is not None)}
        core = None
        if state is not None and state.length > 0:
            core = state.bind(self._core)._core
        request = make_request(self._ids(name, prompt, core is None), **options)
        return self._core.start(request, core), request

    def _to_score(self, text: Prompt) -> Tuple[List[int], bool]:
        """(ids, whether the first one is only there to predict the next)"""
        ids = self._ids("text", text, False)
        start = self._core.start_id if isinstance(text, str) else None
        if not ids:
            raise ValueError("text: expected at least 1 token, got none")
        return (ids, False) if start is None else ([start, *ids], True)

    def _to_logits(self, ids: Prompt, last: Optional[int]) -> Tuple[List[int], int]:
        """(ids, of how many positions)"""
        tokens = self._ids("ids", ids, True)
        if not tokens:
            raise ValueError("ids: expected at least 1 token, got none")
        return tokens, len(tokens) if last is None else _checks.integer("last", last, 1, len(tokens))

    def _to_embed(
        self, text: Union[Prompt, Sequence[Prompt]], pooling: str
    ) -> Tuple[List[List[int]], bool]:
        """(ids of each text, whether it was one text and not a list)"""
        if pooling not in ("mean", "last"):
            raise ValueError(f"pooling: expected 'mean' or 'last', got {pooling!r}")
        single = _checks.is_text_or_ids("text", text)
        texts = [self._ids("text", t, True) for t in ([text] if single else text)]  # type: ignore
        for i, tokens in enumerate(texts):
            if not tokens:
                raise ValueError(f"text[{i}]: expected at least 1 token, got none")
        return texts, single
