"""pydantic-ai's agent with `CodeMode`: code runs in Monty, which is an interpreter for a part of Python."""

from pydantic_ai import Agent
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits
from pydantic_ai_harness import CodeMode
from pydantic_monty import MountDir

from .solvers import price_tool


def solver(_name, url, model):
    """Return a function that solves a task."""

    async def solve(task, folder):
        price = price_tool(task)
        agent = Agent(
            OpenAIChatModel(model, provider=OpenAIProvider(base_url=url, api_key="none")),
            tools=[price] if price else [],
            capabilities=[CodeMode(mount=MountDir(virtual_path="/work", host_path=folder))],
        )
        prompt = task.prompt + (" The files are in /work." if task.files else "")
        result = await agent.run(prompt, usage_limits=UsageLimits(request_limit=10))
        parts = [part for message in result.all_messages() for part in message.parts]
        return str(result.output), [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]

    return solve
