"""The methods of Model for asyncio."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Optional, Sequence, Union

import numpy as np

from adder import _core
from adder._base import ModelBase, Prompt
from adder.generation import Generation, Options, generation_of
from adder.scoring import Score, make_score
from adder.state import State

if TYPE_CHECKING:
    from typing_extensions import Unpack

# A thread is kept no longer than this or one step, whichever is longer, so that few of them serve
# many requests.
_SLICE_S = 0.05


class AsyncModel(ModelBase):
    """What Model has for asyncio. Cancelling a task ends its work within a step of the engine."""

    _pool: Optional[ThreadPoolExecutor] = None

    async def agenerate(
        self, prompt: Prompt, *, state: Optional[State] = None, **options: Unpack[Options]
    ) -> Generation:
        """`generate`, without blocking the event loop."""
        sequence, request = await self._astart(prompt, state, options)
        try:
            while not sequence.done:
                await self._in_thread(sequence.advance, _SLICE_S, False, None)
        finally:
            sequence.cancel()
        return generation_of(sequence, self._core, request)

    async def astream(
        self, prompt: Prompt, *, state: Optional[State] = None, **options: Unpack[Options]
    ) -> AsyncIterator[str]:
        """`stream`, without blocking the event loop: ``async for piece in model.astream(...)``."""
        sequence, _ = await self._astart(prompt, state, options)
        try:
            while not sequence.done:
                piece = await self._in_thread(sequence.advance, _SLICE_S, True, None)
                if piece:
                    yield piece
        finally:
            sequence.cancel()

    async def afeed(self, state: Optional[State], prompt: Prompt) -> State:
        """`feed`, without blocking the event loop."""
        return (await self.agenerate(prompt, state=state, max_tokens=0, keep_state=True)).state

    async def ascore(self, text: Prompt) -> Score:
        """`score`, without blocking the event loop."""
        ids, first = self._to_score(text)
        result = await self._cancellable(self._core.next_token, ids)
        return make_score(self._core, text, ids, first, *result)

    async def aembed(
        self, text: Union[Prompt, Sequence[Prompt]], *, pooling: str = "mean"
    ) -> np.ndarray:
        """`embed`, without blocking the event loop."""
        texts, single = self._to_embed(text, pooling)
        vectors = await self._cancellable(self._core.embed, texts, pooling == "mean")
        return vectors[0] if single else vectors

    def _in_thread(self, function: Callable, *arguments: Any) -> "asyncio.Future":
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max_workers=self._core.slots, thread_name_prefix="adder")
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    # Tokenizing a long prompt takes a while too.
    def _astart(self, prompt: Prompt, state: Optional[State], options: Options) -> "asyncio.Future":
        return self._in_thread(self._start, "prompt", prompt, state, options)

    async def _cancellable(self, function: Callable, *arguments: Any) -> Any:
        cancel = _core.Cancel()
        try:
            return await self._in_thread(function, *arguments, cancel)
        except asyncio.CancelledError:
            cancel.set()
            raise
