"""The answer that ends an agent's work: from code or from a message, and checked against a type."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from autogen_agentchat.messages import BaseChatMessage, StructuredMessage, TextMessage
from autogen_core.models import RequestUsage
from pydantic import BaseModel, ValidationError

from autogen_codeact.agents import codeact_prompt as prompt
from autogen_codeact.agents.code_search import find_code
from autogen_codeact.agents.extraction import extract_code_blocks
from autogen_codeact.agents.handoffs import ANSWER_AFTER_TRANSFER, BlockEnd
from autogen_codeact.agents.text import json_values, shorten
from codeact_sandbox import ToolAnswer
from codeact_sandbox.types.tool import ToolArgumentError

MAX_PROBLEM_CHARS = 2_000

STUB = '''
def final_answer(value):
    """Give the final answer, which ends the code and the task."""

    def plain(thing, depth=0):
        import dataclasses

        if depth > 50 or thing is None or isinstance(thing, (str, int, float)):
            return thing
        if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
            return {field.name: plain(getattr(thing, field.name), depth + 1) for field in dataclasses.fields(thing)}
        if hasattr(thing, "model_dump"):
            return thing.model_dump(mode="json")
        if hasattr(thing, "to_dict") and hasattr(thing, "columns"):
            return plain(thing.to_dict("records"), depth + 1)
        if hasattr(thing, "to_dict"):
            return plain(thing.to_dict(), depth + 1)
        if hasattr(thing, "tolist"):
            return plain(thing.tolist(), depth + 1)
        if isinstance(thing, dict):
            return {str(key): plain(item, depth + 1) for key, item in thing.items()}
        if isinstance(thing, (list, tuple, set, frozenset)):
            return [plain(item, depth + 1) for item in thing]
        if hasattr(thing, "isoformat"):
            return thing.isoformat()
        return str(thing)

    _call("final_answer", {"value": plain(value)})
    raise SystemExit
'''
"""The function `final_answer` in the session. It ends the block as `sys.exit()` does."""


@dataclass(frozen=True)
class Answer:
    """An answer.

    Args:
        text: As text, or as JSON.
        value: As an instance of the agent's `output_type`; None without one.
    """

    text: str
    value: BaseModel | None = None

    def message(
        self,
        source: str,
        *,
        usage: RequestUsage | None = None,
        metadata: Mapping[str, str] | None = None,
        format_string: str | None = None,
    ) -> BaseChatMessage:
        """Make a message of it: a `StructuredMessage` with a value, shown as `format_string` says, else a `TextMessage`."""
        more: dict[str, Any] = {"source": source, "models_usage": usage, "metadata": dict(metadata or {})}
        if self.value is None:
            return TextMessage(content=self.text, **more)
        kind = cast(type[BaseChatMessage], StructuredMessage[type(self.value)])  # type: ignore[misc]
        return kind(content=self.value, format_string=format_string, **more)


class FinalAnswerTool:
    """The host tool by which code gives the answer. Only a call that reached the host counts, not what the code prints."""

    name = "final_answer"
    signature = "(value)"
    description = "Give the final answer, which ends the code and the task."
    source = STUB

    def __init__(self, end: BlockEnd | None = None, output_type: type[BaseModel] | None = None) -> None:
        self._end = end
        self._output_type = output_type

    async def run(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Accept the answer."""
        if set(arguments) != {"value"}:
            raise ToolArgumentError("final_answer takes one argument, the value")
        if self._end is None:
            raise ValueError("there is no agent here that could give an answer")
        if self._end.answer is not None:
            raise ValueError("final_answer has been called before; the first answer counts")
        if self._end.transfers:
            first = self._end.transfers[0]
            raise ValueError(ANSWER_AFTER_TRANSFER.format(name=first.name, target=first.target))
        self._end.answer = from_value(arguments["value"], self._output_type)
        return ToolAnswer(None)


FINAL_ANSWER = FinalAnswerTool()


def from_value(value: Any, output_type: type[BaseModel] | None) -> Answer:
    """Make an answer of a value that code gave."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if output_type is None:
        return Answer(text)
    try:
        # As JSON, so that strict types take what JSON can't write otherwise, such as dates.
        return Answer(text, output_type.model_validate_json(json.dumps(value)))
    except ValidationError as error:
        if isinstance(value, str):  # code may have written the JSON itself
            with suppress(ValidationError):
                return Answer(text, output_type.model_validate_json(value))
        raise ValueError(_describe_errors(error)) from None


def from_text(text: str, output_type: type[BaseModel] | None) -> Answer:
    """Make an answer of a message without code."""
    if output_type is None:
        return Answer(text)
    problem = "it holds no JSON"
    for candidate in _json_in(text):
        try:
            return Answer(text, output_type.model_validate_json(candidate))
        except ValidationError as error:
            problem = _describe_errors(error) if problem == "it holds no JSON" else problem
    raise ValueError(problem)


def read_answer(text: str, output_type: type[BaseModel] | None) -> Answer | str:
    """Make an answer of a message without code, or return why it is none, as a message to the model."""
    if not text.strip():
        return prompt.EMPTY
    if output_type is None:
        return Answer(text)
    try:
        return from_text(text, output_type)
    except ValueError as error:
        return prompt.MISFIT.format(problem=error)


def closing_answer(
    text: str, output_type: type[BaseModel] | None, languages: Collection[str], why: str
) -> tuple[Answer, str | None]:
    """Make an answer of the model's closing message; there is always one."""
    if not text.strip():
        return Answer(prompt.NO_ANSWER.format(why=why)), None
    misfit = None
    try:
        answer = from_text(text, output_type)
    except ValueError as error:
        answer, misfit = Answer(text), str(error)
    code = find_code([text], languages)
    if answer.value is None and (code.blocks or code.cut_off):
        note = prompt.CUT_OFF_ANSWER if code.cut_off else prompt.NOT_RUN
        answer = Answer(f"{text}\n\n{note.format(why=why)}")
    return answer, misfit


def _json_in(text: str) -> list[str]:
    """Return the texts that may be the JSON, the likeliest first."""
    fenced = [block.code for block in extract_code_blocks(text) if block.complete]
    in_prose = [candidate for candidate, _ in json_values(text, "{[")]
    return [candidate for candidate in (text.strip(), *reversed(fenced), *reversed(in_prose)) if _is_json(candidate)]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _describe_errors(error: ValidationError) -> str:
    text = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'the value'}: {e['msg']}" for e in error.errors())
    return shorten(text, MAX_PROBLEM_CHARS)
