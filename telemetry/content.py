"""Messages and values as text for span attributes: only if switched on, redacted, and of limited length."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autogen_core import FunctionCall
from autogen_core.models import AssistantMessage, CreateResult, LLMMessage, SystemMessage, UserMessage

logger = logging.getLogger("autogen_codeact")

Redact = Callable[[str], str]
"""Takes a text that would become part of a span, and returns what may be shown of it."""

MAX_CHARS = 200_000  # characters of content in one attribute; the rest is left out
CUT = "…"
MAX_KEY = 200
FEW_KEYS = 10  # keys of one object that are kept in any case, so that a message stays a message
# AutoGen's names of the reasons why a model stopped, where OpenTelemetry's differ.
FINISH_REASONS = {"function_calls": "tool_call"}


def encodable(text: str) -> str:
    """Replace halves of surrogate pairs, which code can write and on which exporters fail with all spans of a batch."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class Content:
    """Turns messages and values into the text of attributes."""

    def __init__(self, redact: Redact | None) -> None:
        self._redact = redact

    def value(self, value: Any) -> str:
        """Return a value of JSON, or a text as it is."""
        budget = _Budget()
        shown = self._limited(value, budget)
        return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, default=str)

    def input(self, messages: Sequence[LLMMessage]) -> str:
        """Return the messages that a model was given; the last ones, if they are too long."""
        budget = _Budget()
        shown: list[Any] = []
        for message in reversed(messages):
            if not budget.left:
                break
            shown.append(self._limited(_message(message), budget))
        return json.dumps(shown[::-1], ensure_ascii=False, default=str)

    def output(self, result: CreateResult) -> str:
        """Return the answer of a model."""
        reason = FINISH_REASONS.get(result.finish_reason, result.finish_reason)
        answer = {"role": "assistant", "parts": _answer_parts(result.content, result.thought), "finish_reason": reason}
        return json.dumps([self._limited(answer, _Budget())], ensure_ascii=False, default=str)

    def _limited(self, value: Any, budget: _Budget) -> Any:
        """Copy a value with redacted texts, until the budget is used up."""
        if isinstance(value, str):
            return budget.cut(self._redacted(value))
        if isinstance(value, Mapping):
            shown: dict[str, Any] = {}
            for key, each in value.items():
                if not budget.left and len(shown) >= FEW_KEYS:
                    break
                name = self._redacted(str(key))[:MAX_KEY]
                budget.left = max(0, budget.left - len(name))
                shown[name] = self._limited(each, budget)
            return shown
        if isinstance(value, list | tuple):
            items = []
            for each in value:
                if not budget.left:
                    break
                items.append(self._limited(each, budget))
            return items
        budget.cut("....")
        return value

    def _redacted(self, text: str) -> str:
        if self._redact is None:
            return encodable(text)
        try:
            return encodable(str(self._redact(text)))
        except Exception as error:
            logger.exception("the redact function of the telemetry failed")
            return f"withheld, because redact failed ({type(error).__name__})"


class _Budget:
    """How many characters may still be shown."""

    def __init__(self) -> None:
        self.left = MAX_CHARS

    def cut(self, text: str) -> str:
        shown = text if len(text) <= max(self.left, len(CUT)) else text[: self.left] + CUT
        self.left = max(0, self.left - len(text))
        return shown


def _message(message: LLMMessage) -> dict[str, Any]:
    if isinstance(message, SystemMessage):
        return {"role": "system", "parts": [_text(message.content)]}
    if isinstance(message, UserMessage):
        contents = [message.content] if isinstance(message.content, str) else message.content
        return {"role": "user", "parts": [_text(each) if isinstance(each, str) else _IMAGE_PART for each in contents]}
    if isinstance(message, AssistantMessage):
        return {"role": "assistant", "parts": _answer_parts(message.content, message.thought)}
    results = [{"type": "tool_call_response", "id": each.call_id, "response": each.content} for each in message.content]
    return {"role": "tool", "parts": results}


# An image itself would be megabytes in an attribute.
_IMAGE_PART = {"type": "blob", "modality": "image"}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _answer_parts(content: str | list[FunctionCall], thought: str | None) -> list[dict[str, Any]]:
    parts = [{"type": "reasoning", "content": thought}] if thought else []
    if isinstance(content, str):
        return [*parts, _text(content)]
    calls = [{"type": "tool_call", "id": each.id, "name": each.name, "arguments": each.arguments} for each in content]
    return [*parts, *calls]
