"""Approval of code before it runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Sequence
from typing import cast

from autogen_agentchat.agents._code_executor_agent import (  # the aliases are exported nowhere else
    ApprovalFuncType,
    ApprovalRequest,
    ApprovalResponse,
    AsyncApprovalFunc,
)
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_core.models import LLMMessage

from autogen_codeact.agents.step_record import Step
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.executors.tools.adapters import run_cancellable
from autogen_codeact.executors.tools.later import Later
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.types.result import ErrorInfo

__all__ = ["ApprovalFuncType", "ApprovalRequest", "ApprovalResponse"]


async def request_approval(
    func: ApprovalFuncType,
    blocks: Sequence[CodeBlock],
    context: list[LLMMessage],
    cancellation_token: CancellationToken,
    step: Step | None = None,
) -> ApprovalResponse:
    """Call `func` to decide whether the blocks, the code of a step, may run."""
    code = shown_code(blocks)
    if isinstance(func, Later):
        return await run_cancellable(func.about_code(code, step), cancellation_token)
    request = ApprovalRequest(code=code, context=context)
    answer = await run_cancellable(_call(func, request), cancellation_token)
    if not isinstance(answer, ApprovalResponse):
        raise TypeError(f"approval_func must return an ApprovalResponse, not {type(answer).__name__}; nothing was run.")
    return answer


def shown_code(blocks: Sequence[CodeBlock]) -> str:
    """Return code as who approves it sees it."""
    return "\n\n".join(map(_shown, blocks))


def denied(reason: str) -> ExecutionResult:
    """Return the result of code that was not allowed to run."""
    output = f"Code execution was not approved. Reason: {reason}"
    return ExecutionResult(1, output, outcome="denied", error=ErrorInfo("NotApproved", reason))


async def _call(func: ApprovalFuncType, request: ApprovalRequest) -> ApprovalResponse:
    if inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(getattr(func, "__call__", None)):  # noqa: B004 (is it async, not: is it callable)
        return await cast(AsyncApprovalFunc, func)(request)
    answer: object = await in_thread(func, request)
    if inspect.isawaitable(answer):  # a lambda around an async function looks sync from outside
        answer = await cast(Awaitable[object], answer)
    return cast(ApprovalResponse, answer)


def _shown(block: CodeBlock) -> str:
    # A fence inside the code must not end the fence around it: who approves has to see all of it as code.
    longest = max((len(run) for run in re.findall(r"`+", block.code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{block.language}\n{block.code.rstrip()}\n{fence}"
