"""Adder behind the interface of Hugging Face's causal language models.

>>> from adder.hf import AdderForCausalLM
>>> model = AdderForCausalLM.from_pretrained("state-spaces/mamba-130m-hf")
>>> inputs = tokenizer(["Hello", "A longer prompt"], return_tensors="pt", padding=True)
>>> model.generate(**inputs, max_new_tokens=20)

Ids come and go as PyTorch tensors, NumPy arrays or lists; what comes in goes out. PyTorch is not
imported unless its tensors are given.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, List, Optional, Sequence, Union

import numpy as np

from adder import _checks
from adder.engine import Model, load
from adder.generation import Options


@dataclasses.dataclass(frozen=True)
class CausalLMOutput:
    """logits : (batch, length, vocab_rows) float32; positions that are masked are zero."""

    logits: Any


class AdderForCausalLM:
    """A model with generate() and a forward pass like those of transformers.

    `model` is the :class:`adder.Model` behind it.
    """

    def __init__(self, model: Model) -> None:
        self.model = model

    @classmethod
    def from_pretrained(cls, path: Union[str, os.PathLike], **options: Any) -> "AdderForCausalLM":
        """Loads a model; options as for :func:`adder.load`."""
        return cls(load(path, **options))

    def eval(self) -> "AdderForCausalLM":
        return self

    def __call__(self, input_ids: Any, attention_mask: Any = None) -> CausalLMOutput:
        """Raw logits after every position, padding of the vocabulary included."""
        like, rows, masks = _read(input_ids, attention_mask)
        out = np.zeros((*masks.shape, self.model.config["vocab_rows"]), np.float32)
        for i, row in enumerate(rows):
            out[i, masks[i]] = self.model.logits(row)
        return CausalLMOutput(_like(like, out))

    def generate(
        self,
        input_ids: Any,
        attention_mask: Any = None,
        *,
        max_new_tokens: int = 20,
        do_sample: bool = False,
        temperature: float = 1.0,
        top_k: int = 50,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        eos_token_id: Optional[Union[int, Sequence[int]]] = None,
        pad_token_id: Optional[int] = None,
        num_return_sequences: int = 1,
        seed: int = 0,
    ) -> Any:
        """Prompts and their answers, padded on the right to one length.

        Parameters
        ----------
        input_ids : (batch, length) integers; one row alone may be (length,).
        attention_mask : the same shape, 1 for tokens and 0 for padding on either side, which the
            model never sees: each row gets the bits that it gets alone.
        do_sample : False takes the most probable token; temperature, top_k, top_p and min_p, whose
            defaults are those of transformers, then mean nothing.
        repetition_penalty : over the whole text, as in transformers.
        eos_token_id : ids that end an answer, and are its last token then; None: the model's own.
        pad_token_id : what fills shorter rows; None: the first id of eos_token_id, else 0.
        num_return_sequences : answers per prompt, one after another; needs do_sample.
        seed : row i samples with seed + i. transformers takes it from torch's global generator.

        Returns (batch * num_return_sequences, length + new tokens) of the kind and dtype of
        input_ids. Raises ValueError or TypeError naming the argument.
        """
        like, rows, masks = _read(input_ids, attention_mask)
        count = _checks.integer("num_return_sequences", num_return_sequences, 1, 2**20)
        if count > 1 and not _checks.flag("do_sample", do_sample):
            raise ValueError(f"num_return_sequences: expected 1 without do_sample, got {count}")
        eos = self.model.eos_ids if eos_token_id is None else _token_ids("eos_token_id", eos_token_id)
        if pad_token_id is None:
            pad_token_id = eos[0] if eos else 0
        pad = _checks.integer("pad_token_id", pad_token_id, 0, 2**31 - 1)
        given = np.asarray(_to_numpy(like)).reshape(masks.shape)
        largest = max(pad, self.model.config["vocab_size"] - 1)
        if np.iinfo(given.dtype).max < largest:
            raise ValueError(f"input_ids: expected a dtype that holds ids up to {largest}, got {given.dtype}")
        options: Options = {
            "max_tokens": _checks.integer("max_new_tokens", max_new_tokens, 1, 2**40),
            "repeat_penalty": _checks.real("repetition_penalty", repetition_penalty, 0.01, 100),
            "repeat_last_n": 2**30,
            "stop_tokens": eos,
            "ignore_eos": True,  # eos_token_id replaces the model's own
            "logprobs": 0,  # tell which of several ids ended it
            "temperature": 0.0,
        }
        if _checks.flag("do_sample", do_sample):
            options |= {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        prompts = [row for row in rows for _ in range(count)]
        seed = _checks.integer("seed", seed, 0, 2**63)
        seeds = [seed + i for i in range(len(prompts))]
        answers = self.model.generate_batch(prompts, seeds=seeds, **options)
        # transformers keeps the id that ended an answer.
        ended = [
            [p.token for p in a.logprobs or ()] if a.finish_reason == "stop" else a.tokens for a in answers
        ]
        out = np.full((len(prompts), given.shape[1] + max(map(len, ended))), pad, given.dtype)
        for i, tokens in enumerate(ended):
            out[i, : given.shape[1]] = given[i // count]
            out[i, given.shape[1] : given.shape[1] + len(tokens)] = tokens
        return _like(like, out)


def _token_ids(name: str, value: Any) -> List[int]:
    if isinstance(value, (int, np.integer)):
        value = [value]
    return _checks.ids(name, value)


def _is_tensor(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "torch"


def _to_numpy(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if _is_tensor(value) else np.asarray(value)


def _like(example: Any, array: np.ndarray) -> Any:
    """`array` as what `example` is: a tensor on its device, a list, or an array."""
    if _is_tensor(example):
        import torch  # type: ignore[import-not-found]

        return torch.from_numpy(array).to(example.device)
    return array.tolist() if isinstance(example, (list, tuple)) else array


def _read(input_ids: Any, attention_mask: Any):
    """(input_ids, the tokens of each row, the mask (batch, length) bool)"""
    try:
        ids = _to_numpy(input_ids)
    except ValueError:  # rows of several lengths
        ids = np.empty(0, object)
    if ids.dtype.kind not in "iu" or ids.ndim not in (1, 2) or ids.size == 0:
        got = f"{ids.dtype} of shape {ids.shape}"
        raise ValueError(f"input_ids: expected integers of shape (batch, length), got {got}")
    ids = np.atleast_2d(ids)
    mask = np.ones(ids.shape, bool)
    if attention_mask is not None:
        given = np.atleast_2d(_to_numpy(attention_mask))
        if given.shape != ids.shape:
            raise ValueError(f"attention_mask: expected shape {ids.shape}, got {given.shape}")
        if not np.isin(given, (0, 1)).all():
            raise ValueError("attention_mask: expected 0 and 1 only")
        mask = given.astype(bool)
    for i, row in enumerate(mask):
        # A hole would be a prompt that nobody meant.
        if not row.any() or np.count_nonzero(np.diff(np.flatnonzero(row)) != 1):
            raise ValueError(f"attention_mask: expected row {i} to have ones side by side")
    return input_ids, [row[m].tolist() for row, m in zip(ids, mask)], mask
