"""Page agentchat-user-guide/magentic-one: the terminal and the coder that its second example names in comments."""

import asyncio

from autogen_agentchat.agents import CodeExecutorAgent
from autogen_agentchat.teams import MagenticOneGroupChat
from autogen_agentchat.ui import Console
from autogen_ext.agents.magentic_one import MagenticOneCoderAgent
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def main() -> None:
    model_client = OpenAIChatCompletionClient(model="gpt-4o")
    coder = MagenticOneCoderAgent("Coder", model_client=model_client)
    terminal = CodeExecutorAgent("ComputerTerminal", code_executor=LocalCommandLineCodeExecutor())
    team = MagenticOneGroupChat([coder, terminal], model_client=model_client)
    await Console(team.run_stream(task="Greet me with a script."))
    await model_client.close()


asyncio.run(main())
