"""Models: from a checkpoint to text, states, scores and embeddings."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, List, Optional, Sequence, Union

import numpy as np

from adder import _checks, _core
from adder._async import AsyncModel
from adder.chat import ChatModel
from adder.generation import Generation, generation_of, make_request
from adder.scoring import Score, make_score
from adder.state import State
from adder.stream import Stream
from adder.tokenizer import Tokenizer

Prompt = Union[str, _checks.Ids]


class Model(AsyncModel, ChatModel):
    """A loaded model. Make one with :func:`load`.

    Any number of threads may use it at once: requests share steps of the engine, and none changes a
    bit of another's result. Ctrl-C ends every method within a step (a token, or a block of a
    prompt). A process that was forked must load its own.
    """

    def __init__(self, core: _core.Model) -> None:
        self._core = core
        self._pool = None
        self._tokenizer = Tokenizer(core) if core.has_tokenizer else None

    def __repr__(self) -> str:
        return f"<adder.Model {self._core.path}: {self.config['family']} on {self.description}>"

    @property
    def description(self) -> str:
        """Where it computes, e.g. "cpu (AVX2, 2 threads)"."""
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

    # --- text ---

    def generate(self, prompt: Prompt, *, state: Optional[State] = None, **options: Any) -> Generation:
        """What follows `prompt`. The same arguments give the same answer, every time.

        Parameters
        ----------
        prompt : a str, or token ids (list, array or tensor of one dimension). May be empty only
            where `state` has seen something.
        state : what the prompt follows; it is not changed. None: nothing.
        max_tokens : int, 128. 0 only processes the prompt.
        temperature : float, 0.6; 0 takes the most probable token.
        top_k, top_p, min_p : 0 (all), 0.95, 0: which tokens may be chosen.
        repeat_penalty, repeat_last_n : 1 (none), 64.
        presence_penalty, frequency_penalty, logit_bias : as in OpenAI's API; bias by token id.
        seed : int, 0.
        stop : a str or several, which end the text before them.
        stop_tokens : ids that end it like the model's own end-of-text token.
        ignore_eos : go on after the end-of-text token.
        logprobs : int or None: with each token its log-probability and this many alternatives.
        grammar : GBNF text that the answer keeps to. json_schema : a schema, as str or dict.
        keep_state : keep `generation.state`. Default: when `state` was given.

        Raises ValueError or TypeError naming the argument, what was expected and what was got.
        """
        sequence, request = self._start(prompt, state, options)
        _core.finish([sequence], None)
        return generation_of(sequence, self._core, request)

    def stream(self, prompt: Prompt, *, state: Optional[State] = None, **options: Any) -> Stream:
        """An iterator over the pieces of the answer; arguments as for `generate`.

        Each piece is whole characters. The next step is taken when the next piece is asked for, so
        several streams may be read in turns. Closing it, or letting it go, ends the request; after
        the last piece ``stream.generation`` has the rest.
        """
        return Stream(self._core, *self._start(prompt, state, options))

    def generate_batch(
        self,
        prompts: Iterable[Prompt],
        *,
        states: Optional[Sequence[Optional[State]]] = None,
        seed: Union[int, Sequence[int]] = 0,
        **options: Any,
    ) -> List[Generation]:
        """The answers to several prompts, `slots` of them computed together: the same bits as one
        by one, in less time. Options as for `generate`; seed and states may be one per prompt."""
        prompts = list(prompts)
        seeds = list(seed) if isinstance(seed, (list, tuple, np.ndarray)) else [seed] * len(prompts)
        states = [None] * len(prompts) if states is None else list(states)
        for name, given in (("seed", seeds), ("states", states)):
            if len(given) != len(prompts):
                raise ValueError(f"{name}: expected {len(prompts)}, one per prompt, got {len(given)}")
        started = [
            self._start(prompt, state, {**options, "seed": s}, f"prompts[{i}]")
            for i, (prompt, state, s) in enumerate(zip(prompts, states, seeds))
        ]
        _core.finish([sequence for sequence, _ in started], None)
        return [generation_of(sequence, self._core, request) for sequence, request in started]

    # --- states ---

    def state(self) -> State:
        """The state that has seen nothing."""
        return State(_core.State(self._core))

    def feed(self, state: Optional[State], prompt: Prompt) -> State:
        """The state after `prompt` has followed `state`, which is not changed."""
        return self.generate(prompt, state=state, max_tokens=0, keep_state=True).state

    def load_state(self, source: Union[str, os.PathLike, State]) -> State:
        """A state from a file of ``State.save`` or ``adder run --state-out``, or one that was pickled.

        Raises ValueError when it is damaged or of another model, OSError when it cannot be read.
        """
        if isinstance(source, State):
            return source.bind(self)
        return State(self._core.load_state(os.fspath(source)))

    # --- numbers ---

    def score(self, text: Prompt) -> Score:
        """How probable the model finds a text, token by token, as ``adder score`` does.

        A str gets the model's begin- or end-of-text token in front, where there is one, so that its
        first token is predicted too. Of ids the first one is not.
        """
        ids, first = self._to_score(text)
        return make_score(self._core, text, ids, first, *self._core.next_token(ids, None))

    def logits(self, ids: Prompt, last: Optional[int] = None) -> np.ndarray:
        """(positions, vocab_rows) float32: raw logits after each of the `last` tokens; None: all.

        Columns from config["vocab_size"] on are padding. A str is tokenized first.
        """
        tokens = self._ids("ids", ids, True)
        if not tokens:
            raise ValueError("ids: expected at least 1 token, got none")
        count = len(tokens) if last is None else _checks.integer("last", last, 1, len(tokens))
        return self._core.logits(tokens, count, None)

    def embed(self, text: Union[Prompt, Sequence[Prompt]], *, pooling: str = "mean") -> np.ndarray:
        """Texts as vectors of length 1, from the model's final hidden states, float32.

        pooling: "mean" over all positions, or "last". (d_model,) for one text (or its ids),
        (texts, d_model) for a list of them.
        """
        texts, single = self._to_embed(text, pooling)
        vectors = self._core.embed(texts, pooling == "mean", None)
        return vectors[0] if single else vectors

    # --- what the others share ---

    def _ids(self, name: str, prompt: Prompt, begins: bool) -> List[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(_checks.text(name, prompt), bos=begins)
        return _checks.ids(name, prompt)

    def _start(self, prompt: Prompt, state: Optional[State], options: Dict[str, Any], name="prompt"):
        if state is not None and not isinstance(state, State):
            raise TypeError(f"state: expected an adder.State, got {type(state).__name__}")
        begins = state is None or state.length == 0
        options.setdefault("keep_state", state is not None)
        request = make_request(self._ids(name, prompt, begins), **options)
        core = None if begins else state.bind(self)._core
        return self._core.start(request, core), request

    def _to_score(self, text: Prompt):
        ids = self._ids("text", text, False)
        start = self._core.start_id if isinstance(text, str) else None
        if not ids:
            raise ValueError("text: expected at least 1 token, got none")
        return (ids, False) if start is None else ([start, *ids], True)

    def _to_embed(self, text: Any, pooling: str):
        if pooling not in ("mean", "last"):
            raise ValueError(f"pooling: expected 'mean' or 'last', got {pooling!r}")
        single = _checks.is_text_or_ids(text)
        texts = [self._ids("text", t, True) for t in ([text] if single else text)]
        for i, tokens in enumerate(texts):
            if not tokens:
                raise ValueError(f"text[{i}]: expected at least 1 token, got none")
        return texts, single


def load(
    model: Optional[Union[str, os.PathLike]] = None,
    *,
    device: str = "cpu",
    threads: int = 0,
    pin: bool = True,
    block: int = 0,
    slots: int = 0,
) -> Model:
    """Loads a model.

    Parameters
    ----------
    model : a directory, a file (.safetensors, .bin, .pt, .gguf), the name of a repository that
        ``adder pull`` has fetched, or None for the demo model inside the package.
    device : "cpu".
    threads : compute threads, the caller's included; 0: one per CPU that this process may use.
    pin : worker threads keep a CPU of their own when there is one for each. The caller's thread is
        never pinned.
    block : tokens of a prompt that are processed at once; bounds memory. 0: what ``adder tune``
        chose, else 256.
    slots : requests that are computed together; each takes the memory of one state. 0: up to 8.

    Raises ValueError naming the file and the field where one is wrong, OSError where it cannot be
    read, NotImplementedError for a kind of model that Adder cannot run.
    """
    path = "" if model is None else os.fspath(model)
    core = _core.Model(
        path,
        _checks.text("device", device),
        _checks.integer("threads", threads, 0, 1024),
        _checks.flag("pin", pin),
        _checks.integer("block", block, 0, 65536),
        _checks.integer("slots", slots, 0, 4096),
    )
    return Model(core)
