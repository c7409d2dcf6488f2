"""Page core-user-guide/components/user-defined-functions: a host function's source, used in the sandbox."""

import asyncio
from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor


def area_of(width: int, height: int) -> int:
    return width * height


async def main() -> None:
    async with DockerCommandLineCodeExecutor(work_dir=Path("coding"), functions=[area_of]) as executor:
        result = await executor.execute_code_blocks(
            code_blocks=[CodeBlock(language="python", code="from functions import area_of\nprint(area_of(6, 7))")],
            cancellation_token=CancellationToken(),
        )
        print(result.output)


asyncio.run(main())
