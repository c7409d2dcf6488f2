"""Approval by a person who answers later: the run ends, and its log keeps the question."""

from __future__ import annotations

from typing import Any

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse
from autogen_core import Component

from autogen_codeact.executors.tools.policies import PolicyConfig, ToolPolicy
from codeact_sandbox.tools.approval import ToolApproval, ToolApprovalRequest

NO_LOG = (
    "Later() needs the log of a run, which keeps the question: use `recorded(…)` or `codeact run`. In a conversation a person "
    "is there to answer: use AskPerson() there, or a function."
)


class Later(ToolPolicy, Component[PolicyConfig]):
    """Asks a person who may answer in days: the run ends with the question in its log, and `resume` goes on with the answer.

    Pass it as `approve_tool=`, or as `approval_func=` of this package's agents, in runs that have a log.
    """

    component_config_schema = PolicyConfig
    component_provider_override = "autogen_codeact.executors.Later"

    async def __call__(self, request: ToolApprovalRequest | ApprovalRequest) -> Any:
        step: Any = getattr(request, "origin", None)
        if step is None:
            raise RuntimeError(NO_LOG)
        return ToolApproval(*await step.about_call(request))

    async def about_code(self, code: str, step: Any) -> ApprovalResponse:
        if step is None:
            raise RuntimeError(NO_LOG)
        approved, reason = await step.about_code(code)
        return ApprovalResponse(approved=approved, reason=reason)
