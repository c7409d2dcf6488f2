"""AutoGen's `CodeExecutor` as a sandbox."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Self

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor

from autogen_codeact.executors.arguments import ExecutorArguments, ExecutorConfig
from autogen_codeact.executors.functions_module import module_options
from autogen_codeact.executors.result import ExecutionResult
from autogen_codeact.executors.tools.adapters import run_cancellable
from autogen_codeact.executors.tools.host_tools import HostTools
from autogen_codeact.executors.tools.policies import loaded
from codeact_sandbox.host.chunks import OutputChunk
from codeact_sandbox.session.async_sandbox import AsyncSandbox
from codeact_sandbox.types.options import SandboxOptions
from codeact_sandbox.types.run_context import NO_CONTEXT, RunContext


class SandboxCodeExecutor(AsyncSandbox, CodeExecutor):
    """Base class of the executors: a sandbox that runs AutoGen's code blocks, with cancellation tokens and tools."""

    tools: HostTools
    component_config_schema: Any

    def __init__(self, options: SandboxOptions, arguments: ExecutorArguments) -> None:
        if arguments.functions:
            options = options.model_copy(update=module_options(arguments.functions))
        tools = HostTools(arguments.tools, options.tool_limits, arguments.approve_tool)
        super().__init__(options, tools=tools, progress=arguments.progress, pool=arguments.pool)

    @property
    def sandbox(self) -> Self:
        """The executor itself."""
        return self

    async def execute_code_blocks(
        self, code_blocks: Sequence[CodeBlock], cancellation_token: CancellationToken
    ) -> ExecutionResult:
        """Run blocks one after the other, up to the first that fails.

        The sandbox is started if it is not running.

        Args:
            code_blocks: The blocks, at least one.
            cancellation_token: Cancelling it kills the running block with everything that it started.

        Returns:
            One result for all of them; what the code did is never an exception.

        Raises:
            ValueError: There are no blocks.
            SandboxError: Something around the code broke.
            asyncio.CancelledError: It was cancelled; the block is dead by then.
        """
        return await run_cancellable(self.run_blocks(code_blocks), cancellation_token)

    async def run_blocks(self, blocks: Sequence[CodeBlock], context: RunContext = NO_CONTEXT) -> ExecutionResult:
        """Run blocks for a caller that adds something to them, and that cancels the task itself."""
        return ExecutionResult(**vars(await self.run_all(tuple(blocks), context)))

    async def execute_stream(
        self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken, context: RunContext = NO_CONTEXT
    ) -> AsyncGenerator[OutputChunk | ExecutionResult, None]:
        """Run blocks as `execute_code_blocks` does, and show their output while they write it.

        Args:
            code_blocks: The blocks, at least one.
            cancellation_token: Cancelling it kills the running block with everything that it started.
            context: What the caller adds to the blocks. Default: nothing.

        Yields:
            An `OutputChunk` for each piece of output, and finally the `ExecutionResult`.
        """
        if not code_blocks:
            raise ValueError("No code blocks to execute.")
        async with aclosing(
            self.stream_all(tuple(code_blocks), context, on_start=cancellation_token.link_future)
        ) as items:
            async for item in items:
                yield item if isinstance(item, OutputChunk) else ExecutionResult(**vars(item))

    def _to_config(self) -> Any:
        return self.component_config_schema(**{**self.options.values(), **self.tools.dump()})

    @classmethod
    def _from_config(cls, config: Any) -> Self:
        # `__init__` of a subclass takes the options of its sandbox as keyword arguments.
        options = {name: value for name, value in config.values().items() if name not in ExecutorConfig.model_fields}
        return cls(**{**options, **loaded(config.tools, config.approve_tool)})

    upload = AsyncSandbox.put_file
    download = AsyncSandbox.get_file
