"""The executor of an AutoGen agent that writes its results to a run's log, or in a resumed run returns results from the log."""

from __future__ import annotations

from autogen_core import CancellationToken, ComponentModel
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

from autogen_codeact.agents.step_record import RunEnded
from autogen_codeact.runs.steps import AgentSteps
from codeact_sandbox import SandboxError


class RecordedExecutor(CodeExecutor):
    """Forwards to another executor. Our own agents have no need of it: they record what they run themselves."""

    in_session = asks_later = False

    def __init__(self, executor: CodeExecutor, steps: AgentSteps) -> None:
        self._executor = executor
        self._steps = steps

    async def execute_code_blocks(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Return the result of code, after it is in the log."""

        async def live() -> RunEnded:
            return RunEnded(await self._executor.execute_code_blocks(code_blocks, cancellation_token))

        ended = await self._steps.run(self, code_blocks, live)
        if ended.error is not None:
            raise ended.error
        return ended.result

    def journal(self) -> None:
        """Return None: AutoGen's agents rebuild no session."""

    async def repeat(self, result: CodeResult, error: SandboxError | None = None) -> RunEnded:
        """Return how a run ended before."""
        return RunEnded(result, error)

    # What is the other executor's own

    async def start(self) -> None:
        """Start it."""
        await self._executor.start()

    async def stop(self) -> None:
        """Stop it."""
        await self._executor.stop()

    async def restart(self) -> None:
        """Restart it."""
        await self._executor.restart()

    def dump_component(self) -> ComponentModel:
        """Return its configuration."""
        return self._executor.dump_component()
