"""Handoffs: functions by which code hands the task over to another agent when its block ends."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autogen_agentchat.base import Handoff
from autogen_agentchat.messages import HandoffMessage
from autogen_core.models import AssistantMessage, CreateResult, LLMMessage

from codeact_sandbox import ToolAnswer
from codeact_sandbox.types.result import ToolCall
from codeact_sandbox.types.tool import ToolArgumentError

STUB = '''
def {name}(message=None):
    """Hand the task over to another agent when this block ends without an error."""
    _call("{name}", {{}} if message is None else {{"message": str(message)}})
'''
"""A handoff's function in the session. It returns, because a transfer takes effect when the block ends."""

DONE = "The task was handed over to {target}."
ONLY_FIRST = "Only the first transfer of a block counts; {names} had no effect."
FAILED = "The code failed, so the task was not handed over to {target}."
ANSWER_AFTER_TRANSFER = (
    "{name} has been called, and the turn ends with that transfer: pass what {target} has to know as its message, or "
    "call only one of the two"
)
TRANSFER_AFTER_ANSWER = "final_answer has been called before, so there is nothing left to hand over"


@dataclass(frozen=True)
class Transfer:
    """A handoff that code has called.

    Args:
        name: Name of the function.
        target: The agent that is to go on.
        message: What it is told.
    """

    name: str
    target: str
    message: str

    def as_message(self, source: str, context: list[LLMMessage], metadata: Mapping[str, str]) -> HandoffMessage:
        """Make the agent's answer of it."""
        metadata = {**metadata, "answered_by": self.name}
        return HandoffMessage(
            content=self.message, target=self.target, source=source, context=context, metadata=metadata
        )


@dataclass
class BlockEnd:
    """How one block ended the turn: by an answer or by handoffs.

    Args:
        answer: The answer that it has given, or the transfer that took effect.
        transfers: The handoffs that it has called, in their order.
    """

    answer: Any = None
    transfers: list[Transfer] = field(default_factory=list)

    def take_effect(self, *, succeeded: bool) -> list[str]:
        """Let the first transfer take effect, if the block succeeded; return what the model is told of the transfers."""
        first = self.transfers[0]
        if not succeeded:
            return [FAILED.format(target=first.target)]
        self.answer = first
        others = dict.fromkeys(each.name for each in self.transfers if each.name != first.name)
        return [DONE.format(target=first.target), *([ONLY_FIRST.format(names=", ".join(others))] if others else [])]

    @property
    def verb(self) -> str:
        """What the block has done that no other one runs after it."""
        if self.answer is None:
            return "failed"
        return "handed the task over" if isinstance(self.answer, Transfer) else "gave the answer"


class HandoffTool:
    """The host tool of a handoff."""

    def __init__(self, handoff: Handoff, end: BlockEnd | None = None) -> None:
        self.name = handoff.name
        self.signature = f"(message: str = {handoff.message!r})"
        self.description = handoff.description
        self.source = STUB.format(name=handoff.name)
        self._handoff = handoff
        self._end = end

    def __eq__(self, other: object) -> bool:
        # In a shared session several agents may have a handoff of one name; the function there is the same.
        return isinstance(other, HandoffTool) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    async def run(self, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Record the call; the agent evaluates it when the block has ended."""
        message = arguments.get("message", "")
        if set(arguments) - {"message"} or not isinstance(message, str):
            raise ToolArgumentError(f"{self.name} takes one argument at most, the message")
        if self._end is None:
            raise ValueError(f"the agent that runs this code can't hand over to {self._handoff.target}")
        if self._end.answer is not None:
            raise ValueError(TRANSFER_AFTER_ANSWER)
        text = message if message.strip() else self._handoff.message
        self._end.transfers.append(Transfer(self.name, self._handoff.target, text))
        return ToolAnswer(None)


def as_handoffs(values: Sequence[Handoff | str] | None) -> tuple[Handoff, ...]:
    """Check an agent's handoffs."""
    handoffs = []
    for each in values or ():
        if not isinstance(each, Handoff | str):
            raise TypeError(f"handoffs must hold names of agents and Handoff objects, not a {type(each).__name__}.")
        handoffs.append(_checked(Handoff(target=each) if isinstance(each, str) else each))
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


def not_handed_over(handoffs: Sequence[Handoff], calls: Sequence[ToolCall]) -> list[str]:
    """Return what the model is told of the transfers among the calls of a block whose sandbox broke."""
    called = {call.name for call in calls if call.outcome == "ok"}
    return [FAILED.format(target=handoff.target) for handoff in handoffs if handoff.name in called]


def context_for(generated: CreateResult, shown: LLMMessage | None, source: str) -> list[LLMMessage]:
    """Return what the next agent gets to know beside the message, as AutoGen's `AssistantAgent` passes it on."""
    if shown is not None:
        return [AssistantMessage(content=generated.content, thought=generated.thought, source=source), shown]
    if generated.thought:
        return [AssistantMessage(content=generated.thought, source=source)]
    return []


def _checked(handoff: Handoff) -> Handoff:
    target, name = handoff.target, handoff.name
    if not target.strip():
        raise ValueError("A handoff needs a target, the name of an agent.")
    if not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name) or hasattr(builtins, name):
        raise ValueError(
            f"The handoff to {target!r} can't be a function called `{name}`: in Python that is not a usable name. "
            f"Use Handoff(target={target!r}, name=...)."
        )
    return handoff
