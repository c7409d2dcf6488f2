"""Our agents."""

from pathlib import Path

from autogen_agentchat.messages import CodeExecutionEvent
from autogen_core.models import ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

from autogen_codeact.agents import Budget, CodeActAgent, CodeExecutorAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor

from .solvers import price_tool

INFO = ModelInfo(vision=False, function_calling=False, json_output=True, structured_output=True, family="unknown")


def solver(name, url, model):
    """Return a function that solves a task."""

    async def solve(task, folder):
        client = OpenAIChatCompletionClient(model=model, base_url=url, api_key="none", model_info=INFO)
        tool = price_tool(task)
        tools = [tool] if tool else []
        session = "session" if name == "ours, CodeAct" else "process"
        async with BubblewrapCommandLineCodeExecutor(mode=session, work_dir=Path(folder), tools=tools) as executor:
            if name == "ours, CodeAct":
                agent = CodeActAgent(
                    "coder", executor, model_client=client, model_client_stream=True, budget=Budget(max_steps=5)
                )
            else:
                retries = 2 if name == "ours, retries" else 0
                agent = CodeExecutorAgent(
                    "coder", executor, model_client=client, model_client_stream=True, max_retries_on_error=retries
                )
            outputs = []
            async for message in agent.run_stream(task=task.prompt):
                if isinstance(message, CodeExecutionEvent):
                    outputs.append(message.result.output)
            return message.messages[-1].to_text(), outputs

    return solve
