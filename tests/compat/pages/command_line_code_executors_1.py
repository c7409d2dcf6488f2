"""Page core-user-guide/components/command-line-code-executors: the Docker executor as a context manager."""

import asyncio
from pathlib import Path
from typing import Any

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor

work_dir = Path("coding")
work_dir.mkdir(exist_ok=True)


async def main() -> Any:
    async with DockerCommandLineCodeExecutor(work_dir=work_dir) as executor:
        return await executor.execute_code_blocks(
            code_blocks=[CodeBlock(language="python", code="print('good morning')")],
            cancellation_token=CancellationToken(),
        )


result = asyncio.run(main())
print(f"exit code {result.exit_code}, output {result.output!r}")
assert result.code_file is not None
print(f"saved in {Path(result.code_file).parent}: {Path(result.code_file).read_text()}")
