"""The tokenizer that came with a model."""

from __future__ import annotations

from typing import List, Optional

from adder import _checks, _core


class Tokenizer:
    """Text to token ids and back. One comes with each model: ``model.tokenizer``.

    Attributes are those of the model's files: ``bos_id`` and ``eos_id`` may be None; ``wants_bos``
    says whether a text is to begin with ``bos_id``, which `encode` and `Model.generate` do then.
    """

    def __init__(self, core: _core.Model) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"<adder.Tokenizer: {self.kind}, {len(self)} ids>"

    def __len__(self) -> int:
        return self._core.tokenizer_size

    @property
    def vocab_size(self) -> int:
        """How many ids there are: 0 to vocab_size - 1."""
        return self._core.tokenizer_size

    @property
    def kind(self) -> str:
        return self._core.tokenizer_kind

    @property
    def bos_id(self) -> Optional[int]:
        return self._core.tokenizer_bos

    @property
    def eos_id(self) -> Optional[int]:
        return self._core.tokenizer_eos

    @property
    def wants_bos(self) -> bool:
        return self._core.tokenizer_wants_bos

    def encode(self, text: str, *, special: bool = False, bos: bool = False) -> List[int]:
        """The ids of a text.

        Parameters
        ----------
        special : the spelling of control tokens ("<|endoftext|>") in the text becomes the token.
            Leave it False for text that others wrote.
        bos : put the token that begins a text in front, where the tokenizer's files ask for it.
        """
        return self._core.encode(
            _checks.text("text", text), _checks.flag("special", special), _checks.flag("bos", bos)
        )

    def decode(self, ids: _checks.Ids, *, skip_special: bool = False) -> str:
        """The text of the ids. Bytes that are not UTF-8 become U+FFFD. Raises ValueError for an id
        that there is not."""
        return self.decode_bytes(ids, skip_special=skip_special).decode("utf-8", "replace")

    def decode_bytes(self, ids: _checks.Ids, *, skip_special: bool = False) -> bytes:
        return self._core.decode(_checks.ids("ids", ids), _checks.flag("skip_special", skip_special))

    def token_bytes(self, id: int) -> bytes:
        """The bytes that one token stands for in the middle of a text."""
        return self._core.token_bytes(_checks.integer("id", id, 0, 2**31 - 1))

    def is_special(self, id: int) -> bool:
        """Whether it is a control token, which text cannot contain unless `special` is set."""
        return self._core.is_special(_checks.integer("id", id, 0, 2**31 - 1))

    def token_to_id(self, token: str) -> Optional[int]:
        """The id of a token by its spelling in the vocabulary; None when there is none."""
        return self._core.token_to_id(_checks.text("token", token))
