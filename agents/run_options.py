"""How an agent runs code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autogen_agentchat.base import Handoff
from pydantic import BaseModel

from autogen_codeact.agents.approval import ApprovalFuncType
from autogen_codeact.agents.journal import RedactResult
from autogen_codeact.executors.tools.host_tools import ToolLike
from codeact_sandbox.tools.approval import ApproveTool


@dataclass(frozen=True)
class RunOptions:
    """How an agent runs code.

    Args:
        approval_func: Decides whether code may run; None if all code may.
        stream_output: Whether there are events about output, if the executor can stream it.
        tools: Host tools of the agent.
        approve_tool: Called before each call to a host tool; None for that of the executor, if any.
        redact: Returns what is recorded of a tool's result or error; None for all of it.
        setup: Python that runs first in each new session; None for nothing.
        answers: Whether code can call `final_answer`; only with an executor that has host tools.
        output_type: The model that the agent's answer must fit, or None.
        output_format: How such an answer is shown as text: a format string with its fields; None for JSON.
        describe_environment: Whether the model is told what is in the sandbox.
        handoffs: Agents to which code can hand the task over; only with an executor that has host tools.
    """

    approval_func: ApprovalFuncType | None
    stream_output: bool
    tools: Sequence[ToolLike]
    approve_tool: ApproveTool | None
    redact: RedactResult | None
    setup: str | None = None
    answers: bool = False
    output_type: type[BaseModel] | None = None
    output_format: str | None = None
    describe_environment: bool = True
    handoffs: tuple[Handoff, ...] = ()
