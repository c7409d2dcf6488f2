"""The answer that ends an agent's work: from code or from a message, and checked against a type."""

from __future__ import annotations

import builtins
import json
import keyword
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autogen_agentchat.base import Handoff
from autogen_agentchat.messages import HandoffMessage
from autogen_core.models import AssistantMessage, CreateResult, LLMMessage
from pydantic import BaseModel, ValidationError

from autogen_codeact.agents import codeact_prompt as prompt
from autogen_codeact.agents.extraction import extract_code_blocks
from autogen_codeact.agents.text import json_values, shorten
from codeact_sandbox import ToolAnswer
from codeact_sandbox.types.tool import ToolArgumentError

HANDOFF_STUB = '''
def {name}(message=None):
    """Hand the task over to another agent, which ends the code and the turn."""
    _call("{name}", {{}} if message is None else {{"message": str(message)}})
    raise SystemExit
'''
"""A handoff's function in the session."""


@dataclass(frozen=True)
class Transfer:
    """A handoff that code has called: the name of its function, the target, and the message."""

    name: str
    target: str
    message: str

    def as_message(self, source: str, context: list[LLMMessage], metadata: Mapping[str, str]) -> HandoffMessage:
        metadata = {**metadata, "answered_by": self.name}
        return HandoffMessage(
            content=self.message, target=self.target, source=source, context=context, metadata=metadata
        )


@dataclass
class TurnEnd:
    answer: Answer | Transfer | None = None

    def check_open(self) -> None:
        """Refuse a second answer."""
        if self.answer is not None:
            raise ValueError("the turn has ended already, with an answer or a handoff; the first one counts")


class HandoffTool:
    def __init__(self, handoff: Handoff, end: TurnEnd | None = None) -> None:
        self.name = handoff.name
        self.signature = f"(message: str = {handoff.message!r})"
        self.description = handoff.description
        self.source = HANDOFF_STUB.format(name=handoff.name)
        self._handoff = handoff
        self._end = end

    def __eq__(self, other: object) -> bool:
        # In a shared session several agents may have a handoff of one name; the function there is the same.
        return isinstance(other, HandoffTool) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    async def run(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        """End the turn."""
        message = arguments.get("message", "")
        if set(arguments) - {"message"} or not isinstance(message, str):
            raise ToolArgumentError(f"{self.name} takes one argument at most, the message")
        if self._end is None:
            raise ValueError(f"the agent that runs this code can't hand over to {self._handoff.target}")
        self._end.check_open()
        text = message if message.strip() else self._handoff.message
        self._end.answer = Transfer(self.name, self._handoff.target, text)
        return ToolAnswer(None)


def as_handoffs(values: Sequence[Handoff | str] | None) -> tuple[Handoff, ...]:
    """Check an agent's handoffs."""
    handoffs = []
    for each in values or ():
        if not isinstance(each, Handoff | str):
            raise TypeError(f"handoffs must hold names of agents and Handoff objects, not a {type(each).__name__}.")
        handoff = Handoff(target=each) if isinstance(each, str) else each
        target, name = handoff.target, handoff.name
        if not target.strip():
            raise ValueError("A handoff needs a target, the name of an agent.")
        if not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name) or hasattr(builtins, name):
            raise ValueError(
                f"The handoff to {target!r} can't be a function called `{name}`: in Python that is not a usable name. "
                f"Use Handoff(target={target!r}, name=...)."
            )
        handoffs.append(handoff)
    names = [handoff.name for handoff in handoffs]
    if double := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"Two handoffs have the same name ({', '.join(double)}): give one of them another `name`.")
    return tuple(handoffs)


def check_clash(handoffs: Sequence[Handoff], tools: Collection[str]) -> None:
    """Refuse handoffs that have the names of tools."""
    for handoff in handoffs:
        if handoff.name in tools:
            raise ValueError(
                f"The handoff to {handoff.target} and a host tool are both called `{handoff.name}`: rename the tool, or "
                f"use Handoff(target={handoff.target!r}, name=...)."
            )


def context_for(generated: CreateResult, shown: LLMMessage | None, source: str) -> list[LLMMessage]:
    """Return what the next agent gets to know beside the message, as AutoGen's `AssistantAgent` passes it on."""
    if shown is not None:
        return [AssistantMessage(content=generated.content, thought=generated.thought, source=source), shown]
    if generated.thought:
        return [AssistantMessage(content=generated.thought, source=source)]
    return []


MAX_PROBLEM_CHARS = 2_000
ANSWER_STUB = '''
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
    """An answer as text, or as JSON; and as an instance of the agent's `output_type`, if there is one."""

    text: str
    value: BaseModel | None = None


@dataclass(frozen=True, eq=False)
class FinalAnswerTool:
    """The host tool by which code gives the answer. Only a call that reached the host counts, not what the code prints."""

    end: TurnEnd | None = None
    output_type: type[BaseModel] | None = None

    name = "final_answer"
    signature = "(value)"
    description = "Give the final answer, which ends the code and the task."
    source = ANSWER_STUB

    async def run(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        if set(arguments) != {"value"}:
            raise ToolArgumentError("final_answer takes one argument, the value")
        if self.end is None:
            raise ValueError("there is no agent here that could give an answer")
        self.end.check_open()
        self.end.answer = from_value(arguments["value"], self.output_type)
        return ToolAnswer(None)


FINAL_ANSWER = FinalAnswerTool()


def from_value(value: Any, output_type: type[BaseModel] | None) -> Answer:
    """Make an answer of a value that code gave."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # As JSON, so that strict types take what JSON can't write otherwise, such as dates. Code may have written the JSON itself.
    return _answer(text, output_type, [json.dumps(value), text])


def from_text(text: str, output_type: type[BaseModel] | None) -> Answer:
    """Make an answer of a message without code."""
    fenced = [block.code for block in extract_code_blocks(text) if block.complete]
    in_prose = [candidate for candidate, _ in json_values(text, "{[")]
    return _answer(text, output_type, [text.strip(), *reversed(fenced), *reversed(in_prose)])


def _answer(text: str, output_type: type[BaseModel] | None, candidates: list[str]) -> Answer:
    """Make an answer of the first text that is JSON of the type."""
    if output_type is None:
        return Answer(text)
    problems = []
    for candidate in candidates:
        try:
            return Answer(text, output_type.model_validate_json(candidate))
        except ValidationError as error:
            if error.errors()[0]["type"] != "json_invalid":
                problems.append(_describe_errors(error))
    raise ValueError(problems[0] if problems else "it holds no JSON")


def read_answer(text: str, output_type: type[BaseModel] | None) -> Answer | str:
    """Make an answer of a message without code, or return the reason why it is not one, as a message to the model."""
    if not text.strip():
        return prompt.EMPTY
    try:
        return from_text(text, output_type)
    except ValueError as error:
        return prompt.MISFIT.format(problem=error)


def closing_answer(text: str, output_type: type[BaseModel] | None, why: str) -> tuple[Answer, str | None]:
    """Make an answer of the model's closing message, and return why it does not fit; there is always an answer."""
    if not text.strip():
        return Answer(prompt.NO_ANSWER.format(why=why)), None
    try:
        return from_text(text, output_type), None
    except ValueError as error:
        return Answer(text), str(error)


def _describe_errors(error: ValidationError) -> str:
    text = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'the value'}: {e['msg']}" for e in error.errors())
    return shorten(text, MAX_PROBLEM_CHARS)
