"""The methods of Model for asyncio."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, AsyncGenerator, Callable, Optional, Sequence, Union

import numpy as np

from adder import _checks, _core
from adder._base import Prompt
from adder.chat import ChatModel, Messages
from adder.generation import Generation, Options, generation_of, without_blank
from adder.scoring import Score, make_score
from adder.state import State

if TYPE_CHECKING:
    from typing_extensions import Unpack

# A thread is kept no longer than this or one step, whichever is longer, so that few of them serve
# many requests.
_SLICE_S = 0.05


def _state(value: Any) -> State:
    if not isinstance(value, State):
        raise TypeError(f"state: expected an adder.State, got {type(value).__name__}")
    return value


class AsyncModel(ChatModel):
    """What Model has for asyncio. Cancelling a task ends its work within a step of the engine."""

    _pool: Optional[ThreadPoolExecutor] = None

    async def agenerate(
        self, prompt: Prompt, *, state: Optional[State] = None, **options: Unpack[Options]
    ) -> Generation:
        """`generate`, without blocking the event loop."""
        return await self._answer(self._start, "prompt", prompt, state, options)

    def astream(
        self, prompt: Prompt, *, state: Optional[State] = None, **options: Unpack[Options]
    ) -> AsyncGenerator[str, None]:
        """`stream`, without blocking the event loop: ``async for piece in model.astream(...)``."""
        return self._pieces(self._start, "prompt", prompt, state, options)

    async def achat(
        self,
        messages: Messages,
        *,
        template: str = "",
        state: Optional[State] = None,
        **options: Unpack[Options],
    ) -> Generation:
        """`chat`, without blocking the event loop."""
        return await self._answer(self._start_chat, messages, template, state, options)

    def achat_stream(
        self,
        messages: Messages,
        *,
        template: str = "",
        state: Optional[State] = None,
        **options: Unpack[Options],
    ) -> AsyncGenerator[str, None]:
        """`chat_stream`, without blocking the event loop."""
        return self._pieces(self._start_chat, messages, template, state, options)

    async def afeed(self, state: Optional[State], prompt: Prompt) -> State:
        """`feed`, without blocking the event loop."""
        return (await self.agenerate(prompt, state=state, max_tokens=0, keep_state=True)).state

    async def arollback(self, state: State, tokens: int) -> State:
        """``state.rollback(tokens)``, without blocking the event loop."""
        count = _checks.integer("tokens", tokens, 0, 2**62)
        core = (await self.aload_state(_state(state)))._bound()
        return State(await self._cancellable(core.roll_back, count))

    async def asave_state(self, state: State, path: Union[str, os.PathLike]) -> None:
        """``state.save(path)``, without blocking the event loop."""
        file = _checks.path("path", path)
        core = (await self.aload_state(_state(state)))._bound()
        await self._cancellable(core.save, file)

    async def aload_state(self, source: Union[str, os.PathLike, State]) -> State:
        """`load_state`, without blocking the event loop."""
        if isinstance(source, State):
            if source._core is not None and source._core.model is self._core:
                return source
            return await self._cancellable(source.bind, self._core)
        return State(await self._cancellable(self._core.load_state, _checks.path("source", source)))

    async def ascore(self, text: Prompt) -> Score:
        """`score`, without blocking the event loop."""
        ids, first = self._to_score(text)
        result = await self._cancellable(self._core.next_token, ids)
        return make_score(self._core, text, ids, first, *result)

    async def alogits(self, ids: Prompt, last: Optional[int] = None) -> np.ndarray:
        """`logits`, without blocking the event loop."""
        return await self._cancellable(self._core.logits, *self._to_logits(ids, last))

    async def aembed(
        self, text: Union[Prompt, Sequence[Prompt]], *, pooling: str = "mean"
    ) -> np.ndarray:
        """`embed`, without blocking the event loop."""
        texts, single = self._to_embed(text, pooling)
        vectors = await self._cancellable(self._core.embed, texts, pooling == "mean")
        return vectors[0] if single else vectors

    # start: what begins the request, in a thread: tokenizing a long prompt takes a while too.
    async def _answer(self, start: Callable, *arguments: Any) -> Generation:
        sequence, request, *blank = await self._in_thread(start, *arguments)
        try:
            while not sequence.done:
                await self._in_thread(sequence.advance, _SLICE_S, False, None)
        finally:
            sequence.cancel()
        return generation_of(sequence, self._core, request, *blank)

    async def _pieces(self, start: Callable, *arguments: Any) -> AsyncGenerator[str, None]:
        sequence, _, *blank = await self._in_thread(start, *arguments)
        at_start = True
        try:
            while not sequence.done:
                piece = await self._in_thread(sequence.advance, _SLICE_S, True, None)
                if piece and at_start:
                    at_start = False
                    piece = without_blank(piece, *blank)
                if piece:
                    yield piece
        finally:
            sequence.cancel()

    def _in_thread(self, function: Callable, *arguments: Any) -> "asyncio.Future":
        slots = self._core.slots  # throws in a forked child, which has not the pool's threads
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max_workers=slots, thread_name_prefix="adder")
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    async def _cancellable(self, function: Callable, *arguments: Any) -> Any:
        cancel = _core.Cancel()
        try:
            return await self._in_thread(function, *arguments, cancel)
        except asyncio.CancelledError:
            cancel.set()
            raise
