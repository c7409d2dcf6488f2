"""A model whose words were written down beforehand."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from autogen_core.models import CreateResult, ModelFamily, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.cli.ending import CommandError

_FORM = 'give a JSON list (or one JSON value a line) of strings or of {"content": "…", "thought": "…"}'
_WORDS = re.compile(r"\s*\S+\s*")


class RecordingEnded(RuntimeError):
    """The model was asked once more than its recording has answers."""


class RecordedModel(ReplayChatCompletionClient):
    """AutoGen's replay client, which also streams an answer in the form that it was written in.

    Args:
        answers: What it says, in this order, whatever it is told.
    """

    def __init__(self, answers: Sequence[CreateResult]) -> None:
        info = ModelInfo(
            vision=False, function_calling=False, json_output=True, family=ModelFamily.UNKNOWN, structured_output=True
        )
        super().__init__(answers, info)

    async def create(self, *args: Any, **kwargs: Any) -> CreateResult:
        """Give the next answer.

        Raises:
            RecordingEnded: There is none.
        """
        if len(self.create_calls) >= self.provided_message_count:
            count = self.provided_message_count
            raise RecordingEnded(
                f"the recording has {count} answer{'' if count == 1 else 's'}, and one more was asked for"
            )
        return await super().create(*args, **kwargs)

    async def create_stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[str | CreateResult, None]:
        """Give the next answer word by word, then whole."""
        answer = await self.create(*args, **kwargs)
        for word in _WORDS.findall(str(answer.content)):
            yield word
        yield answer


def parse_answers(text: str, name: str) -> list[CreateResult]:
    """Read the answers of a recording.

    Args:
        text: A JSON list, an object with such a list as `answers`, or one JSON value a line.
        name: What it is called in errors.

    Raises:
        CommandError: It is none of these, or empty.
    """
    try:
        recorded = json.loads(text)
    except ValueError:
        recorded = _lines(text, name)
    if isinstance(recorded, dict) and "answers" in recorded:
        recorded = recorded["answers"]
    if not isinstance(recorded, list):
        recorded = [recorded]
    if not recorded:
        raise CommandError(f"{name} holds no answers: {_FORM}")
    return [_answer(entry, number, name) for number, entry in enumerate(recorded, 1)]


def _lines(text: str, name: str) -> list[Any]:
    values = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                values.append(json.loads(line))
            except ValueError as error:
                raise CommandError(f"{name}:{number} is not JSON ({error}): {_FORM}") from None
    return values


def _answer(entry: Any, number: int, name: str) -> CreateResult:
    fields = {"content": entry} if isinstance(entry, str) else entry
    if not isinstance(fields, dict) or not isinstance(fields.get("content"), (str, list)):
        raise CommandError(f"{name}: answer {number} has no text: {_FORM}")
    content, thought = fields["content"], fields.get("thought")
    if isinstance(content, list):
        content = "\n".join(map(str, content))
    usage = RequestUsage(prompt_tokens=0, completion_tokens=len(content.split()))
    return CreateResult(
        finish_reason="stop",
        content=content,
        usage=usage,
        cached=True,
        thought=str(thought) if thought is not None else None,
    )
