"""The code of one attempt at a step, in a branch of the session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from autogen_core.code_executor import CodeBlock

from autogen_codeact.agents.answer import BlockEnd
from autogen_codeact.agents.step_record import InBranch
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.executors.capabilities import SessionExecutor
from codeact_sandbox import Unsupported
from codeact_sandbox.branches import AsyncBranch
from codeact_sandbox.host.blocks import combine
from codeact_sandbox.host.waiting import in_thread
from codeact_sandbox.types.result import ErrorInfo
from codeact_sandbox.types.run_context import RunContext

CHECK_FAILED = "The check after this code failed."


class BranchRun:
    """Runs the blocks of an attempt, and keeps the branch if they succeed and that is wanted."""

    def __init__(self, how: InBranch, context: Callable[[BlockEnd], RunContext]) -> None:
        self._how = how
        self._context = context
        self._branch: AsyncBranch | None = None
        self.notes: list[Callable[[], None]] = []
        """Add the blocks to the journal of the session, if the branch is kept."""

    async def run(self, session: SessionExecutor, run: Callable[..., Awaitable[ExecutionResult]]) -> ExecutionResult:
        """Run the blocks with `run(branch=…)`, in a branch of a session."""
        try:
            async with session.new_branch() as self._branch:
                result = await run(branch=self)
                if result.exit_code == 0 and self._how.check is not None:
                    checked = await self.run_block(self._how.check, BlockEnd())
                    if checked.exit_code != 0:
                        whole = combine([result, checked])
                        return replace(whole, notes=(*whole.notes, CHECK_FAILED))
                if self._how.keeps(result):
                    return await self._keep(self._branch, result)
                return result
        except Unsupported as error:  # such as a job that runs, or too little memory for a copy
            problem = ErrorInfo("Unsupported", str(error))
            return ExecutionResult(1, str(error), outcome="error", error=problem)

    async def run_block(self, block: CodeBlock, end: BlockEnd) -> ExecutionResult:
        """Run one block."""
        assert self._branch is not None
        result = ExecutionResult(**vars(await self._branch.run_block(block, self._context(end))))
        self._branch.results[-1] = result
        return result

    async def _keep(self, branch: AsyncBranch, result: ExecutionResult) -> ExecutionResult:
        await branch.keep()
        for note in self.notes:
            await in_thread(note)
        # The files and their names are known now.
        files = {file.name: file for each in branch.results for file in each.artifacts}
        stored = [shown for each in branch.results for shown in each.displays]
        shown = [replace(old, name=new.name, path=new.path) for old, new in zip(result.displays, stored, strict=False)]
        return replace(result, artifacts=tuple(files.values()), displays=tuple(shown))
