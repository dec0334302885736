"""Conversations of messages, with a model's chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, List, Mapping, Optional, Sequence, Tuple

from adder import _checks, _core
from adder._base import ModelBase
from adder.generation import Generation, Options, generation_of
from adder.state import State
from adder.stream import Stream

if TYPE_CHECKING:
    from typing_extensions import Unpack

Messages = Sequence[Mapping[str, str]]


class ChatModel(ModelBase):
    """What Model has for chats."""

    def chat(
        self,
        messages: Messages,
        *,
        template: str = "",
        state: Optional[State] = None,
        **options: Unpack[Options],
    ) -> Generation:
        """The assistant's next message.

        Parameters
        ----------
        messages : [{"role": "system" | "user" | "assistant", "content": str}, ...]. Control tokens
            that are spelled in a content are ordinary text.
        template : "plain", "chatml", "mistral" or "falcon"; empty: the model's own, or "plain" for a
            model that has none.
        state : the state of an earlier answer (`keep_state`): `messages` are then the new ones only.
        options : as for `generate`.
        """
        sequence, request, blank = self._start_chat(messages, template, state, options)
        _core.finish([sequence], None)
        return generation_of(sequence, self._core, request, blank)

    def chat_stream(
        self,
        messages: Messages,
        *,
        template: str = "",
        state: Optional[State] = None,
        **options: Unpack[Options],
    ) -> Stream:
        """An iterator over the pieces of the assistant's next message, as `stream`; arguments as for
        `chat`."""
        return Stream(self._core, *self._start_chat(messages, template, state, options))

    def chat_prompt(self, messages: Messages, *, template: str = "") -> List[int]:
        """The ids that `chat` feeds, for use with `stream` and others."""
        return self._chat_request(messages, template, None, {})[0]

    def _start_chat(
        self, messages: Messages, template: str, state: Optional[State], options: Options
    ) -> Tuple[_core.Sequence, _core.Request, bool]:
        """The request on its way, and whether its answer begins with a blank that is not meant."""
        prompt, options, blank = self._chat_request(messages, template, state, options)
        return (*self._start("messages", prompt, state, options), blank)

    def _chat_request(
        self, messages: Messages, template: str, state: Optional[State], options: Options
    ) -> Tuple[List[int], Options, bool]:
        found = self._core.chat_template(_checks.text("template", template))
        continues = state is not None and state.length > 0
        prompt = self._core.chat_prompt(_pairs(messages), template, continues)
        stop_tokens = options.get("stop_tokens")
        ids = [] if stop_tokens is None else _checks.ids("stop_tokens", stop_tokens)
        options = {
            **options,
            "stop": _checks.strings("stop", options.get("stop")) + found["stop"],
            "stop_tokens": ids + found["stop_tokens"],
        }
        return prompt, options, found["blank"]


def _pairs(messages: Messages) -> List[Tuple[str, str]]:
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise TypeError(f"messages: expected a list of dicts, got {type(messages).__name__}")
    pairs = []
    for i, message in enumerate(messages):
        for key in ("role", "content"):
            if not isinstance(message, Mapping) or not isinstance(message.get(key), str):
                raise TypeError(f"messages[{i}]: expected a dict with the strings role and content")
        role, content = (_checks.text(f"messages[{i}]", message[key]) for key in ("role", "content"))
        pairs.append((role, content))
    if not pairs:
        raise ValueError("messages: expected at least 1, got none")
    return pairs
