"""Models: from a checkpoint to text, states, scores and embeddings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Iterable, List, Optional, Sequence, Union

import numpy as np

from adder import _checks, _core
from adder._async import AsyncModel
from adder._base import Prompt
from adder.generation import Generation, Options, generation_of
from adder.scoring import Score, make_score
from adder.state import State
from adder.stream import Stream

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Model(AsyncModel):
    """A loaded model. Make one with :func:`load`.

    Any number of threads may use it at once: requests share steps of the engine, and none changes a
    bit of another's result. Ctrl-C ends every method within a step (a token, or a block of a
    prompt). A process that was forked must load its own.
    """

    # --- text ---

    def generate(
        self, prompt: Prompt, *, state: Optional[State] = None, **options: Unpack[Options]
    ) -> Generation:
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
        sequence, request = self._start("prompt", prompt, state, options)
        _core.finish([sequence], None)
        return generation_of(sequence, self._core, request)

    def stream(self, prompt: Prompt, *, state: Optional[State] = None, **options: Unpack[Options]) -> Stream:
        """An iterator over the pieces of the answer; arguments as for `generate`.

        Each piece is whole characters. The next step is taken when the next piece is asked for, so
        several streams may be read in turns. Closing it, or letting it go, ends the request; after
        the last piece ``stream.generation`` has the rest.
        """
        return Stream(self._core, *self._start("prompt", prompt, state, options))

    def generate_batch(
        self,
        prompts: Iterable[Prompt],
        *,
        states: Optional[Sequence[Optional[State]]] = None,
        seeds: Optional[Sequence[int]] = None,
        **options: Unpack[Options],
    ) -> List[Generation]:
        """The answers to several prompts, `slots` of them computed together: the same bits as one
        by one, in less time. states, seeds: one per prompt; options as for `generate`."""
        prompts = list(_checks.iterable("prompts", prompts))
        seeds = [options.get("seed", 0)] * len(prompts) if seeds is None else list(_checks.iterable("seeds", seeds))
        states = [None] * len(prompts) if states is None else list(_checks.iterable("states", states))
        for name, given in (("seeds", seeds), ("states", states)):
            if len(given) != len(prompts):
                raise ValueError(f"{name}: expected {len(prompts)}, one per prompt, got {len(given)}")
        started = []
        for i, (prompt, state, seed) in enumerate(zip(prompts, states, seeds)):
            options["seed"] = seed
            started.append(self._start(f"prompts[{i}]", prompt, state, options))
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
            return source.bind(self._core)
        return State(self._core.load_state(_checks.path("source", source)))

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
        return self._core.logits(*self._to_logits(ids, last), None)

    def embed(self, text: Union[Prompt, Sequence[Prompt]], *, pooling: str = "mean") -> np.ndarray:
        """Texts as vectors of length 1, from the model's final hidden states, float32.

        pooling: "mean" over all positions, or "last". (d_model,) for one text (or its ids),
        (texts, d_model) for a list of them.
        """
        texts, single = self._to_embed(text, pooling)
        vectors = self._core.embed(texts, pooling == "mean", None)
        return vectors[0] if single else vectors


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
        never pinned. False where other work keeps the CPUs busy: a pinned thread waits for its own.
    block : tokens of a prompt that are processed at once; bounds memory. 0: what ``adder tune``
        chose, else 256.
    slots : requests that are computed together; each takes the memory of one state. 0: up to 8.

    Raises ValueError naming the file and the field where one is wrong, OSError where it cannot be
    read, NotImplementedError for a kind of model that Adder cannot run.
    """
    path = b"" if model is None else _checks.path("model", model)
    core = _core.Model(
        path,
        _checks.text("device", device),
        _checks.integer("threads", threads, 0, 1024),
        _checks.flag("pin", pin),
        _checks.integer("block", block, 0, 65536),
        _checks.integer("slots", slots, 0, 4096),
    )
    return Model(core)
