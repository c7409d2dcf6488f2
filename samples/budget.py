"""An agent that may cost a third of a cent; its model is a recording that costs ten dollars for a million tokens."""

import asyncio

from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import Budget, CodeActAgent, Prices
from autogen_codeact.executors import DockerCommandLineCodeExecutor

ANSWERS = [
    "```python\nimport math\nprint(math.factorial(1))\n```",
    "```python\nprint(math.factorial(2))\n```",
    "1! to 2! were computed; 3! is missing.",
]


async def main() -> None:
    """Run the agent until its budget is used up."""
    budget = Budget(max_cost=0.0035, prices=Prices(prompt=10, completion=10))
    model = ReplayChatCompletionClient(ANSWERS)
    async with DockerCommandLineCodeExecutor(mode="session") as executor:
        agent = CodeActAgent("coder", executor, model_client=model, budget=budget, describe_environment=False)
        result = await agent.run(task="Compute 1!, 2! and 3!, each in a step of its own.")
    answer = result.messages[-1]
    print("stopped:", answer.metadata["stopped"])
    print(answer.to_text())


if __name__ == "__main__":
    asyncio.run(main())
