"""The background jobs of an agent's turn: what is new of them, and their end."""

from __future__ import annotations

from autogen_agentchat.messages import BaseChatMessage, CodeGenerationEvent
from autogen_core.code_executor import CodeResult

from autogen_codeact.agents.conversation import Conversation, Emit
from autogen_codeact.agents.step_record import StepRecord
from autogen_codeact.executors import ExecutionResult
from codeact_sandbox.background import RUN_IN_BACKGROUND, BackgroundJobs, JobNews
from codeact_sandbox.commands import HasCommands

JOBS_RUN = (
    "{news}\nYour answer would end the background jobs that run. If you need them, wait for them in code first; else give your "
    "answer again."
)


class AgentJobs:
    """The background jobs that the code of one agent starts."""

    def __init__(self, sandbox: HasCommands) -> None:
        self.tool = BackgroundJobs(sandbox)
        """By which code starts them."""
        self.steps: StepRecord | None = None
        self._started = self._told = False

    def repeat(self) -> None:
        """Note that an earlier process has started jobs, whose sandbox is gone."""
        self.tool.lost = True

    async def news(self, result: CodeResult | None = None) -> JobNews:
        """Return what is new, if code has started any in this turn; a result says whether it has."""
        calls = result.tool_calls if isinstance(result, ExecutionResult) else ()
        self._started |= any(call.name == RUN_IN_BACKGROUND for call in calls)
        if not self._started:
            return JobNews()
        get = self.tool.news
        return await (get() if self.steps is None else self.steps.value("jobs", get, JobNews))

    async def may_end(self, conversation: Conversation, answer: BaseChatMessage, emit: Emit) -> bool:
        """Return whether an answer ends the turn; if jobs run, the model is told so once."""
        jobs = await self.news()
        if self._told or not jobs.running:
            return True
        self._told = True
        told = JOBS_RUN.format(news=jobs.text)
        await conversation.notify(told)
        await emit(
            CodeGenerationEvent(
                retry_attempt=0,
                content=answer.to_text(),
                code_blocks=[],
                source=answer.source,
                models_usage=answer.models_usage,
                metadata={**answer.metadata, "sent_back": told},
            )
        )
        return False

    async def end(self) -> None:
        """End those that run."""
        self._started = self._told = False
        await self.tool.end()
