"""What a generation is asked for, and what it gives."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, TypedDict, Union

from adder import _checks, _core
from adder.state import State

_HUGE = 2**40


@dataclasses.dataclass(frozen=True)
class TokenLogprob:
    """A token with the natural logarithm of its probability, before temperature and filters."""

    token: int
    logprob: float
    text: str = ""
    top: Tuple["TokenLogprob", ...] = ()  # the most probable ones at this place, best first


@dataclasses.dataclass(frozen=True)
class Timings:
    """Seconds for the prompt up to the first token, and for the rest."""

    prefill_s: float
    decode_s: float


@dataclasses.dataclass(frozen=True)
class Generation:
    """The answer to a prompt. ``str(generation)`` is its text, and so is ``print(generation)``.

    Attributes
    ----------
    text : what was generated, without the prompt; ends before a stop string. Empty for a model
        without a tokenizer.
    tokens : its ids, without the end-of-text token.
    finish_reason : "stop" (end-of-text token or stop string), "length" (max_tokens) or "cancelled".
    prompt_tokens : tokens before the answer, those of a continued state included.
    cached_tokens : of those, how many came with the state.
    logprobs : one TokenLogprob per token when ``logprobs`` was given, the end-of-text token's too.
    timings : Timings.
    """

    text: str
    tokens: List[int]
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    logprobs: Optional[List[TokenLogprob]]
    timings: Timings
    _state: Optional[State] = dataclasses.field(default=None, repr=False)

    def __str__(self) -> str:
        return self.text

    @property
    def state(self) -> State:
        """The conversation up to the end of the answer. Raises ValueError when it was not kept."""
        if self._state is None:
            raise ValueError("state: it was not kept: pass keep_state=True to generate()")
        return self._state


class Options(TypedDict, total=False):
    """The options of Model.generate(), which describes them."""

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    repeat_last_n: int
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Optional[Mapping[int, float]]
    seed: int
    stop: Optional[Union[str, Sequence[str]]]
    stop_tokens: Optional[_checks.Ids]
    ignore_eos: bool
    logprobs: Optional[int]
    grammar: Optional[str]
    json_schema: Optional[Union[str, Mapping[str, Any]]]
    keep_state: bool


def make_request(
    prompt: List[int],
    *,
    max_tokens: int = 128,
    temperature: float = 0.6,
    top_k: int = 0,
    top_p: float = 0.95,
    min_p: float = 0.0,
    repeat_penalty: float = 1.0,
    repeat_last_n: int = 64,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    logit_bias: Optional[Mapping[int, float]] = None,
    seed: int = 0,
    stop: Optional[Union[str, Sequence[str]]] = None,
    stop_tokens: Optional[_checks.Ids] = None,
    ignore_eos: bool = False,
    logprobs: Optional[int] = None,
    grammar: Optional[str] = None,
    json_schema: Optional[Union[str, Mapping[str, Any]]] = None,
    keep_state: bool = False,
) -> _core.Request:
    """Checks the options of Model.generate() and puts them together."""
    r = _core.Request()
    r.prompt = prompt
    r.max_tokens = _checks.integer("max_tokens", max_tokens, 0, _HUGE)
    r.temperature = _checks.real("temperature", temperature, 0, 100)
    r.top_k = _checks.integer("top_k", top_k, 0, 2**30)
    r.top_p = _checks.real("top_p", top_p, 0, 1)
    r.min_p = _checks.real("min_p", min_p, 0, 1)
    r.repeat_penalty = _checks.real("repeat_penalty", repeat_penalty, 0.01, 100)
    r.repeat_last_n = _checks.integer("repeat_last_n", repeat_last_n, 0, 2**30)
    r.presence_penalty = _checks.real("presence_penalty", presence_penalty, -2, 2)
    r.frequency_penalty = _checks.real("frequency_penalty", frequency_penalty, -2, 2)
    if not isinstance(logit_bias, (Mapping, type(None))):
        raise TypeError(f"logit_bias: expected a dict, got {type(logit_bias).__name__}")
    r.logit_bias = [
        (_checks.integer("logit_bias", id, 0, 2**31 - 1), _checks.real("logit_bias", bias, -100, 100))
        for id, bias in (logit_bias or {}).items()
    ]
    r.seed = _checks.integer("seed", seed, 0, 2**64 - 1)
    r.stop = _checks.strings("stop", stop)
    r.stop_tokens = [] if stop_tokens is None else _checks.ids("stop_tokens", stop_tokens)
    r.ignore_eos = _checks.flag("ignore_eos", ignore_eos)
    r.want_logprobs = logprobs is not None
    r.top_logprobs = 0 if logprobs is None else _checks.integer("logprobs", logprobs, 0, 2**30)
    r.grammar = "" if grammar is None else _checks.text("grammar", grammar)
    if json_schema is not None:
        r.json_schema = _schema_text(json_schema)
        if grammar is not None:
            raise ValueError("grammar: expected it or json_schema, got both")
    r.keep_state = _checks.flag("keep_state", keep_state)
    return r


def _schema_text(schema: Any) -> str:
    if isinstance(schema, str):
        return _checks.text("json_schema", schema)
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"json_schema: expected what JSON can express: {error}") from None


def without_blank(text: str, drop: bool = False) -> str:
    """`text` without the blank that it may begin with, if `drop`."""
    return text[1:] if drop and text.startswith(" ") else text


def generation_of(
    sequence: _core.Sequence, core: _core.Model, request: _core.Request, drop_blank: bool = False
) -> Generation:
    """The result of a sequence that is done; drop_blank: without a blank that its text begins with."""
    d: Dict[str, Any] = sequence.result()
    return Generation(
        text=without_blank(d["text"], drop_blank),
        tokens=d["tokens"],
        finish_reason=d["finish_reason"],
        prompt_tokens=d["prompt_tokens"],
        cached_tokens=d["cached_tokens"],
        logprobs=[_logprob(core, *p) for p in d["logprobs"]] if request.want_logprobs else None,
        timings=Timings(d["prefill_s"], d["decode_s"]),
        _state=State(sequence.state()) if request.keep_state else None,
    )


def _logprob(core: _core.Model, token: int, value: float, top: Sequence = ()) -> TokenLogprob:
    text = core.token_bytes(token).decode("utf-8", "replace") if core.has_tokenizer else ""
    return TokenLogprob(token, value, text, tuple(_logprob(core, *t) for t in top))
