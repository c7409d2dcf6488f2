"""The agents that commands let work on a task."""

from __future__ import annotations

from autogen_core.code_executor import CodeExecutor
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.cli.jobs import AgentChoice
from autogen_codeact.teams import Team, coder_executor_team

LANGUAGES = ("python", "sh", "bash")
"""Run by default, with and without --act."""


def make_agent(
    choice: AgentChoice, client: ChatCompletionClient, executor: CodeExecutor, *, stream: bool, stream_output: bool
) -> CodeActAgent | CodeExecutorAgent | Team:
    """Return the agent or team that the options describe."""
    if choice.team:
        return coder_executor_team(
            client,
            executor,
            model_client_stream=stream,
            stream_output=stream_output,
            supported_languages=list(LANGUAGES),
        )
    if choice.act:
        return CodeActAgent(
            "coder",
            executor,
            model_client=client,
            model_client_stream=stream,
            stream_output=stream_output,
            max_steps=choice.steps or 20,
        )
    return CodeExecutorAgent(
        "coder",
        executor,
        model_client=client,
        model_client_stream=stream,
        stream_output=stream_output,
        max_retries_on_error=3 if choice.retries is None else choice.retries,
        supported_languages=list(LANGUAGES),
    )
