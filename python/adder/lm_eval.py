"""Adder as a model of EleutherAI's lm-evaluation-harness.

    python -m adder.lm_eval --model adder --model_args model=state-spaces/mamba-130m --tasks piqa

runs the harness's own command line with the model "adder" known to it. Versions that look for entry
points find it without that, and importing this module registers it for `lm_eval.simple_evaluate`.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
from lm_eval.api.model import LM  # type: ignore[import-untyped]
from lm_eval.api.registry import register_model  # type: ignore[import-untyped]

from adder import _checks, _core
from adder.engine import Model, load

_log = logging.getLogger(__name__)

# Requests that the engine gets at once; what they gave is in the harness's cache after each such part.
_SHARE = 256

_Pair = Tuple[List[int], List[int]]  # ids of the context, and of what is scored behind it


@register_model("adder")
class AdderLM(LM):
    """Parameters, the ``--model_args``:

    model : as for :func:`adder.load`, or a loaded adder.Model.
    device : as for :func:`adder.load`. The harness asks for "cuda:0" when nobody has said anything;
        what this build does not have becomes "cpu", with a note in the log.
    threads, block, slots : as for :func:`adder.load`.
    max_gen_toks : tokens of an answer where the task does not say.
    batch_size, max_batch_size : what the harness adds; `slots` decides, and no result depends on it.
    """

    def __init__(
        self,
        model: Any = None,
        *,
        device: Optional[str] = None,
        max_gen_toks: int = 256,
        batch_size: Any = None,
        max_batch_size: Any = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if device not in _core.available_devices():
            _log.info("device: %s is not in this build of Adder, cpu is used", device)
            device = "cpu"
        self.model = model if isinstance(model, Model) else load(model, device=device, **options)
        self.max_gen_toks = _checks.integer("max_gen_toks", max_gen_toks, 1, 2**40)

    @property
    def tokenizer_name(self) -> str:
        return self.model._core.path.replace("/", "__")

    def apply_chat_template(
        self, chat_history: List[Dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The text of a chat, which ends with what introduces the assistant's next message."""
        if not add_generation_prompt:
            raise NotImplementedError("add_generation_prompt: expected True")
        return self.model.tokenizer.decode(self.model.chat_prompt(chat_history))

    def loglikelihood(self, requests: List[Any], disable_tqdm: bool = False) -> List[Tuple[float, bool]]:
        """(log-probability of the continuation, whether it is the greedy one) per request, whose args
        are (context, continuation)."""
        pairs = [self._encode_pair(*request.args) for request in requests]
        return self._scored("loglikelihood", requests, pairs, lambda score: score)

    def loglikelihood_rolling(self, requests: List[Any], disable_tqdm: bool = False) -> List[float]:
        """The log-probability of each whole text. Mamba has no window to roll: it is one run."""
        pairs = [(self._start(), self.model.tokenizer.encode(*request.args)) for request in requests]
        return self._scored("loglikelihood_rolling", requests, pairs, lambda score: score[0])

    def generate_until(self, requests: List[Any], disable_tqdm: bool = False) -> List[str]:
        """The answers to (context, gen_kwargs): until, max_gen_toks, do_sample, temperature, top_p,
        top_k, min_p. Requests with the same kwargs are computed together."""
        results = [""] * len(requests)
        groups: Dict[str, List[int]] = {}
        for i, request in enumerate(requests):
            groups.setdefault(repr(sorted(request.args[1].items())), []).append(i)
        for members in groups.values():
            options = self._options(requests[members[0]].args[1])
            prompts = [self._context(requests[i].args[0]) for i in members]
            for i, answer in zip(members, self.model.generate_batch(prompts, **options)):
                results[i] = answer.text
                self.cache_hook.add_partial("generate_until", requests[i].args, answer.text)
        return results

    def _options(self, given: Dict[str, Any]) -> Dict[str, Any]:
        given = dict(given)
        options: Dict[str, Any] = {
            "stop": _checks.strings("until", given.pop("until", None)),
            "max_tokens": given.pop("max_gen_toks", given.pop("max_new_tokens", self.max_gen_toks)),
            "temperature": 0.0,
            "top_p": 1.0,
        }
        sample = given.pop("do_sample", given.get("temperature", 0) > 0)
        for name in ("temperature", "top_p", "top_k", "min_p", "seed"):
            if name in given:
                options[name] = given.pop(name)
        if not sample:
            options["temperature"] = 0.0
        if given:
            raise ValueError(f"gen_kwargs: expected none that are not known, got {sorted(given)}")
        return options

    def _start(self) -> List[int]:
        start = self.model._core.start_id
        if start is None:
            raise ValueError("model: expected a begin- or end-of-text token to begin texts with, got none")
        return [start]

    def _context(self, text: str) -> List[int]:
        return self.model.tokenizer.encode(text, bos=True) or self._start()

    def _encode_pair(self, context: str, continuation: str) -> Tuple[List[int], List[int]]:
        if not context:
            return self._start(), self.model.tokenizer.encode(continuation)
        # Blanks belong to the word behind them: tokens may hold both.
        text = context.rstrip()
        before = self._context(text)
        whole = self.model.tokenizer.encode(context + continuation, bos=True)
        return (before, whole[len(before) :]) if text else (self._start(), whole)

    def _scored(
        self, kind: str, requests: List[Any], pairs: List[_Pair], result_of: Callable
    ) -> List[Any]:
        """result_of((log-probability, whether it is the greedy one)) of each pair. Requests share
        steps of the engine, and those that follow each other with one context read it once."""
        results: List[Any] = []
        for begin in range(0, len(pairs), _SHARE):
            part = pairs[begin : begin + _SHARE]
            scored = iter(
                self.model._core.continuations(
                    [before + after for before, after in part if after],
                    [len(before) for before, after in part if after],
                    None,
                )
            )
            for request, (_, after) in zip(requests[begin:], part):
                score = (0.0, True)
                if after:
                    nll, best = next(scored)
                    score = float(-np.sum(nll)), bool(np.array_equal(best, after))
                results.append(result_of(score))
                self.cache_hook.add_partial(kind, request.args, results[-1])
        return results


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate  # type: ignore[import-untyped]

    cli_evaluate()
