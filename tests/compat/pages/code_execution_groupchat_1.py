"""Page core-user-guide/design-patterns/code-execution-groupchat: two agents of one's own around the executor."""

import asyncio
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from autogen_core import (
    DefaultTopicId,
    MessageContext,
    RoutedAgent,
    SingleThreadedAgentRuntime,
    default_subscription,
    message_handler,
)
from autogen_core.code_executor import CodeBlock, CodeExecutor
from autogen_core.models import AssistantMessage, ChatCompletionClient, LLMMessage, SystemMessage, UserMessage
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor
from autogen_ext.models.openai import OpenAIChatCompletionClient

FENCE = "`" * 3


@dataclass
class Note:
    content: str


@default_subscription
class Writer(RoutedAgent):
    def __init__(self, model: ChatCompletionClient) -> None:
        super().__init__("Writes code.")
        self._model = model
        self._history: list[LLMMessage] = [SystemMessage(content="Write Python in markdown blocks.")]

    @message_handler
    async def write(self, message: Note, ctx: MessageContext) -> None:
        self._history.append(UserMessage(content=message.content, source="user"))
        result = await self._model.create(self._history)
        assert isinstance(result.content, str)
        print(f"Writer: {result.content}")
        self._history.append(AssistantMessage(content=result.content, source="assistant"))
        await self.publish_message(Note(result.content), DefaultTopicId())


@default_subscription
class Runner(RoutedAgent):
    def __init__(self, executor: CodeExecutor) -> None:
        super().__init__("Runs code.")
        self._executor = executor

    @message_handler
    async def run(self, message: Note, ctx: MessageContext) -> None:
        found = re.findall(rf"{FENCE}(\w+)\n(.*?){FENCE}", message.content, re.DOTALL)
        if blocks := [CodeBlock(language=language, code=code) for language, code in found]:
            result = await self._executor.execute_code_blocks(blocks, cancellation_token=ctx.cancellation_token)
            print(f"Runner: exit code {result.exit_code}, {result.output}")
            await self.publish_message(Note(result.output), DefaultTopicId())


work_dir = tempfile.mkdtemp(dir=".")


async def main() -> None:
    runtime = SingleThreadedAgentRuntime()
    async with DockerCommandLineCodeExecutor(work_dir=work_dir) as executor:
        await Writer.register(runtime, "writer", lambda: Writer(OpenAIChatCompletionClient(model="gpt-4o")))
        await Runner.register(runtime, "runner", lambda: Runner(executor))
        runtime.start()
        await runtime.publish_message(Note("Plot the two price series to a file."), DefaultTopicId())
        await runtime.stop_when_idle()


asyncio.run(main())
for figure in Path(work_dir).glob("*.svg"):
    print(f"figure {figure.name}: {figure.read_text()}")
