"""Page agentchat-user-guide/migration-guide, "Two-Agent Chat": the agent with upstream's local executor in a team."""

import asyncio

from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.ui import Console
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def main() -> None:
    model_client = OpenAIChatCompletionClient(model="gpt-4o", seed=42, temperature=0)
    coder = AssistantAgent(
        name="coder",
        system_message="Write Python. Say only TERMINATE when the work is done.",
        model_client=model_client,
    )
    runner = CodeExecutorAgent(name="runner", code_executor=LocalCommandLineCodeExecutor(work_dir="coding"))
    team = RoundRobinGroupChat(
        [coder, runner], termination_condition=TextMentionTermination("TERMINATE") | MaxMessageTermination(10)
    )
    await Console(team.run_stream(task="Write a script that prints a greeting"))
    await model_client.close()


asyncio.run(main())
