"""A model whose answers are read from a recording."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from autogen_core.models import CreateResult, ModelFamily, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.cli.exit import CommandError

_FORM = 'give a JSON list of strings or of {"content": "…", "thought": "…"}'
_WORDS = re.compile(r"\s*\S+\s*")


def parse_json(text: str, name: str, form: str = "") -> Any:
    """Return what a JSON text contains."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"{name}:{error.lineno} is not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"
    except (ValueError, RecursionError):
        problem = f"{name} is nested too deep, or has a number that is too long"
    raise CommandError(f"{problem}: {form}" if form else problem)


class RecordingEnded(RuntimeError):
    """There were more requests than the recording has answers."""


class RecordedModel(ReplayChatCompletionClient):
    """AutoGen's replay client, with streaming that keeps line breaks and spaces."""

    def __init__(self, answers: Sequence[CreateResult]) -> None:
        info = ModelInfo(
            vision=False, function_calling=False, json_output=True, family=ModelFamily.UNKNOWN, structured_output=True
        )
        super().__init__(answers, info)

    async def create(self, *args: Any, **kwargs: Any) -> CreateResult:
        """Return the next answer."""
        if len(self.create_calls) >= self.provided_message_count:
            count = self.provided_message_count
            raise RecordingEnded(
                f"the recording has {count} answer{'' if count == 1 else 's'}, and one more was requested"
            )
        return await super().create(*args, **kwargs)

    async def create_stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[str | CreateResult, None]:
        """Yield the next answer word by word, then as a whole."""
        answer = await self.create(*args, **kwargs)
        for word in _WORDS.findall(str(answer.content)):
            yield word
        yield answer


def parse_answers(text: str, name: str) -> list[CreateResult]:
    """Read the answers of a recording."""
    recorded = parse_json(text, name, _FORM)
    if not (isinstance(recorded, list) and recorded):
        raise CommandError(f"{name} holds no answers: {_FORM}")
    return [_to_answer(entry, number, name) for number, entry in enumerate(recorded, 1)]


def _to_answer(entry: Any, number: int, name: str) -> CreateResult:
    fields = entry if isinstance(entry, dict) else {"content": entry if isinstance(entry, str) else None}
    content, thought = fields.get("content"), fields.get("thought")
    if isinstance(content, list):
        content = "\n".join(map(str, content))
    if not isinstance(content, str):
        raise CommandError(f"{name}: answer {number} has no text: {_FORM}")
    usage = RequestUsage(prompt_tokens=0, completion_tokens=len(content.split()))
    thought = str(thought) if thought is not None else None
    return CreateResult(finish_reason="stop", content=content, usage=usage, cached=True, thought=thought)
