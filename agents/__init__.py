"""Agents that extract code from a model's answer, run it, decide about retries and reflect on the result."""

from typing import TYPE_CHECKING

from codeact_sandbox.lazy import lazy_names

if __name__ == "agents":
    raise ModuleNotFoundError(f"No module named {__name__!r}", name=__name__)

if TYPE_CHECKING:
    from autogen_codeact.agents.approval import ApprovalFuncType as ApprovalFuncType
    from autogen_codeact.agents.approval import ApprovalRequest as ApprovalRequest
    from autogen_codeact.agents.approval import ApprovalResponse as ApprovalResponse
    from autogen_codeact.agents.budget import Budget as Budget
    from autogen_codeact.agents.budget import Prices as Prices
    from autogen_codeact.agents.code_executor_agent import CodeExecutorAgent as CodeExecutorAgent
    from autogen_codeact.agents.codeact_agent import CodeActAgent as CodeActAgent
    from autogen_codeact.agents.model_calls import DeadlineClient as DeadlineClient
    from autogen_codeact.agents.terminal_input import ask_in_terminal as ask_in_terminal
_NAMES = {
    "autogen_codeact.agents.approval": "ApprovalFuncType ApprovalRequest ApprovalResponse",
    "autogen_codeact.agents.budget": "Budget Prices",
    "autogen_codeact.agents.code_executor_agent": "CodeExecutorAgent",
    "autogen_codeact.agents.codeact_agent": "CodeActAgent",
    "autogen_codeact.agents.model_calls": "DeadlineClient",
    "autogen_codeact.agents.terminal_input": "ask_in_terminal",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
