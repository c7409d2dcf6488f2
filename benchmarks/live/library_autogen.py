"""AutoGen's `CodeExecutorAgent`, with its Docker executor."""

import os
import warnings

from autogen_agentchat.agents import CodeExecutorAgent
from autogen_agentchat.messages import CodeExecutionEvent
from autogen_core.code_executor import FunctionWithRequirementsStr
from autogen_core.models import ModelInfo
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor
from autogen_ext.models.openai import OpenAIChatCompletionClient

INFO = ModelInfo(vision=False, function_calling=False, json_output=True, structured_output=True, family="unknown")
warnings.filterwarnings("ignore", message="No approval function set")


def solver(_name, url, model):
    """Return a function that solves a task."""

    async def solve(task, folder):
        client = OpenAIChatCompletionClient(model=model, base_url=url, api_key="none", model_info=INFO)
        functions = []
        if task.prices:
            # Its functions run in the container.
            source = f'def price(item: str) -> int:\n    """Return the price of an item."""\n    return {task.prices!r}[item]\n'
            functions.append(FunctionWithRequirementsStr(source))
        executor = DockerCommandLineCodeExecutor(image=os.environ["BENCH_IMAGE"], work_dir=folder, functions=functions)
        await executor.start()
        try:
            agent = CodeExecutorAgent("coder", executor, model_client=client, max_retries_on_error=2)
            outputs = []
            async for message in agent.run_stream(task=task.prompt):
                if isinstance(message, CodeExecutionEvent):
                    outputs.append(message.result.output)
            return message.messages[-1].to_text(), outputs
        finally:
            await executor.stop()

    return solve
