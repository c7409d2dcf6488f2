"""How an agent thinks: extract code, run it, decide, reflect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogen_codeact.sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.agents.approval import (
        ApprovalFuncType,
        ApprovalRequest,
        ApprovalResponse,
        AsyncApprovalFunc,
        SyncApprovalFunc,
    )
    from autogen_codeact.agents.code_executor_agent import CodeExecutorAgent
    from autogen_codeact.agents.codeact_agent import CodeActAgent
    from autogen_codeact.agents.config import CodeActAgentConfig, CodeExecutorAgentConfig
    from autogen_codeact.agents.decision import RetryDecision
    from autogen_codeact.agents.journal import Journal, RedactResult
    from autogen_codeact.agents.observation import describe
    from autogen_codeact.agents.person import ask_in_terminal
    from autogen_codeact.agents.reliable_client import ModelTimeoutError, ReliableClient
    from autogen_codeact.agents.replay import Replay
    from autogen_codeact.agents.tool_prompt import describe_tools

_HOME = {
    "ApprovalFuncType": "approval",
    "ApprovalRequest": "approval",
    "ApprovalResponse": "approval",
    "AsyncApprovalFunc": "approval",
    "CodeActAgent": "codeact_agent",
    "CodeActAgentConfig": "config",
    "CodeExecutorAgent": "code_executor_agent",
    "CodeExecutorAgentConfig": "config",
    "Journal": "journal",
    "ModelTimeoutError": "reliable_client",
    "RedactResult": "journal",
    "ReliableClient": "reliable_client",
    "Replay": "replay",
    "RetryDecision": "decision",
    "SyncApprovalFunc": "approval",
    "ask_in_terminal": "person",
    "describe": "observation",
    "describe_tools": "tool_prompt",
}

__all__ = [
    "ApprovalFuncType",
    "ApprovalRequest",
    "ApprovalResponse",
    "AsyncApprovalFunc",
    "CodeActAgent",
    "CodeActAgentConfig",
    "CodeExecutorAgent",
    "CodeExecutorAgentConfig",
    "Journal",
    "ModelTimeoutError",
    "RedactResult",
    "ReliableClient",
    "Replay",
    "RetryDecision",
    "SyncApprovalFunc",
    "ask_in_terminal",
    "describe",
    "describe_tools",
]


__getattr__, __dir__ = lazy_names(__name__, _HOME)
