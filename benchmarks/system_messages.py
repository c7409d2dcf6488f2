"""Print the tokens of each library's system message for the same task: a session without tools, and with one tool.

    python benchmarks/system_messages.py

Counts with the tokenizer of `--model local`. Needs bubblewrap, and a package registry for smolagents.
"""

import asyncio
import json
import subprocess
import tempfile

from autogen_core.models import SystemMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from sidebyside.environments import ENVIRONMENTS, python_of

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.local_models import local_model

SMOLAGENTS = '''
import json
from smolagents import CodeAgent, Model, tool

@tool
def price(item: str) -> int:
    """Return the price of an item.

    Args:
        item: Name of the item.
    """

print(json.dumps([CodeAgent(tools=tools, model=Model()).system_prompt for tools in ([], [price])]))
'''


def price(item: str) -> int:
    """Return the price of an item.

    Args:
        item: Name of the item.
    """
    raise NotImplementedError(item)


async def ours(make, tools, **options):
    """Return the system message that one of our agents sends."""
    client = ReplayChatCompletionClient(["Done."])
    async with BubblewrapCommandLineCodeExecutor(mode="session", tools=tools) as executor:
        await make("coder", executor, model_client=client, **options).run(task="Go.")
    return client.create_calls[0]["messages"][0].content


def of_smolagents():
    """Return the system messages of smolagents' agent, which reads the source of its tools from a file."""
    python = python_of("smolagents", ENVIRONMENTS["smolagents"].requirements)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(SMOLAGENTS)
        script.flush()
        done = subprocess.run([python, script.name], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


async def main():
    """Print the table."""
    found = {"smolagents `CodeAgent`": of_smolagents()}
    found["`CodeActAgent`"] = [await ours(CodeActAgent, tools) for tools in ([], [price])]
    found["`CodeActAgent`, for small models"] = [
        await ours(CodeActAgent, tools, prompt_style="brief") for tools in ([], [price])
    ]
    found["`CodeExecutorAgent`"] = [await ours(CodeExecutorAgent, tools) for tools in ([], [price])]
    found["AutoGen's `CodeExecutorAgent`"] = [CodeExecutorAgent.DEFAULT_SYSTEM_MESSAGE] * 2
    model = local_model()
    empty = model.count_tokens([SystemMessage(content="")])
    print("| tokens of the system message | no tool | one tool |\n|---|---:|---:|")
    for name, messages in found.items():
        counts = [model.count_tokens([SystemMessage(content=message)]) - empty for message in messages]
        print(f"| {name} | {' | '.join(f'{count:,}' for count in counts)} |")


if __name__ == "__main__":
    asyncio.run(main())
