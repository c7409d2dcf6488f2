"""The branch of a session in which the attempts at a step run in turn."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from autogen_core.code_executor import CodeBlock

from autogen_codeact.agents.answer import BlockEnd
from autogen_codeact.agents.step_record import InBranch
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.executors.capabilities import SessionExecutor
from codeact_sandbox import SandboxError, Unsupported
from codeact_sandbox.branches import AsyncBranch, State
from codeact_sandbox.host.blocks import combine
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.types.result import ErrorInfo
from codeact_sandbox.types.run_context import RunContext

logger = logging.getLogger("autogen_codeact")

CHECK_FAILED = "The check after this code failed."
RunInBranch = Callable[[SessionExecutor, Callable[..., Awaitable[ExecutionResult]]], Awaitable[ExecutionResult]]


@dataclass
class _Attempt:
    """An attempt whose code has run: its result, what adds its blocks to the journal, and its state once another runs."""

    context: Callable[[BlockEnd], RunContext]
    result: ExecutionResult | None = None
    notes: list[Callable[[], None]] = field(default_factory=list)
    state: State | None = None


class StepBranch:
    """Runs attempts, each from the same state, and keeps one of them."""

    def __init__(self) -> None:
        self._branch: AsyncBranch | None = None
        self._attempts: dict[int, _Attempt] = {}
        self._last = 0

    @property
    def notes(self) -> list[Callable[[], None]]:
        """Add the blocks of the attempt that runs to the journal of the session, if it is kept."""
        return self._attempts[self._last].notes

    async def run(
        self,
        how: InBranch,
        context: Callable[[BlockEnd], RunContext],
        session: SessionExecutor,
        run: Callable[..., Awaitable[ExecutionResult]],
    ) -> ExecutionResult:
        """Run the blocks of an attempt with `run(branch=…)`, and keep it if it succeeds and that is wanted."""
        try:
            await self._go_back(session)
            self._last = how.number
            attempt = self._attempts[how.number] = _Attempt(context)
            result = await run(branch=self)
            if result.exit_code == 0 and how.check is not None:
                checked = await self.run_block(how.check, BlockEnd())
                if checked.exit_code != 0:
                    whole = combine([result, checked])
                    result = replace(whole, notes=(*whole.notes, CHECK_FAILED))
            attempt.result = result
            return await self.keep(how.number) if how.keeps(result) else result
        except Unsupported as error:  # such as a job that runs, or too little memory for a copy
            await self.close()
            problem = ErrorInfo("Unsupported", str(error))
            return ExecutionResult(1, str(error), outcome="error", error=problem)
        except BaseException:
            await self.close()
            raise

    async def run_block(self, block: CodeBlock, end: BlockEnd) -> ExecutionResult:
        """Run one block."""
        assert self._branch is not None
        context = self._attempts[self._last].context(end)
        result = ExecutionResult(**vars(await self._branch.run_block(block, context)))
        self._branch.results[-1] = result
        return result

    async def _go_back(self, session: SessionExecutor) -> None:
        if self._branch is None:
            self._branch = await session.new_branch().__aenter__()
            return
        last = self._attempts[self._last]
        if last.result is not None and last.result.exit_code == 0:
            try:
                last.state = await self._branch.hold()
            except Unsupported as error:
                logger.warning("attempt %d runs again if it is chosen: %s", self._last, error)
        await self._branch.go_back()

    def holds(self, number: int) -> bool:
        """Whether an attempt can be kept without running it again."""
        attempt = self._attempts.get(number)
        return attempt is not None and (attempt.state is not None or number == self._last)

    async def keep(self, number: int) -> ExecutionResult:
        """Make the state after an attempt the session, and return its result."""
        branch, attempt = self._branch, self._attempts[number]
        assert branch is not None
        assert attempt.result is not None
        if number != self._last:
            await branch.go_back(attempt.state)
        await branch.keep()
        for note in attempt.notes:
            await in_thread(note)
        # The files and their names are known now.
        files = {file.name: file for each in branch.results for file in each.artifacts}
        stored = [shown for each in branch.results for shown in each.displays]
        old = attempt.result.displays
        shown = [replace(each, name=new.name, path=new.path) for each, new in zip(old, stored, strict=False)]
        return replace(attempt.result, artifacts=tuple(files.values()), displays=tuple(shown))

    async def close(self) -> None:
        """Undo what is not kept. If that fails, the session is lost, which the result of its next block says."""
        branch, self._branch = self._branch, None
        self._attempts.clear()
        if branch is not None:
            await branch.__aexit__(SandboxError)
