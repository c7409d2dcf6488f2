"""Page core-user-guide/components/tools: the code execution tool without an agent; nobody stops the executor."""

import asyncio

from autogen_core import CancellationToken
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor
from autogen_ext.tools.code_execution import PythonCodeExecutionTool


async def main() -> None:
    executor = DockerCommandLineCodeExecutor()
    await executor.start()
    tool = PythonCodeExecutionTool(executor)
    value = await tool.run_json({"code": "print('good morning')"}, CancellationToken())
    print(tool.return_value_as_string(value))
    print(f"container {executor.container_name}")


asyncio.run(main())
