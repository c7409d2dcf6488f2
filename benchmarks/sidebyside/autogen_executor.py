"""Any AutoGen executor as a variant, and a turn of an agent with it."""

import tempfile
import time

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_core.models import ModelInfo
from autogen_ext.models.replay import ReplayChatCompletionClient

from .variant import Variant, WrongAnswer

REPLIES = ["It is:\n\n```python\nprint(6 * 7)\n```\n", "The answer is 42."]
INFO = ModelInfo(vision=False, function_calling=False, json_output=True, family="unknown", structured_output=True)


class Executor(Variant):
    """An AutoGen executor.

    Args:
        make: Creates it for a folder.
        languages: The languages that it runs.
    """

    def __init__(self, make, languages=("python", "sh")):
        self.make = make
        self.languages = languages

    async def start(self):
        self.folder = tempfile.TemporaryDirectory()
        self.executor = await self.made()
        await self.executor.start()

    async def made(self):
        """Create the executor."""
        return self.make(self.folder.name)

    async def result(self, language, code):
        """Run a block and return the whole result."""
        return await self.executor.execute_code_blocks([CodeBlock(code=code, language=language)], CancellationToken())

    async def run(self, language, code):
        return (await self.result(language, code)).output

    async def stop(self):
        await self.executor.stop()

    async def clear(self):
        self.folder.cleanup()


async def turn(agent_class, executor):
    """Return the seconds of one turn: a scripted model writes code, the executor runs it, the model reflects on the output."""
    model = ReplayChatCompletionClient(REPLIES, model_info=INFO)
    agent = agent_class("coder", executor, model_client=model)
    began = time.perf_counter()
    result = await agent.run(task="What is 6 times 7?")
    seconds = time.perf_counter() - began
    # The model can know the answer only from the block's output.
    if result.messages[-1].to_text() != REPLIES[-1] or "42" not in str(model.create_calls[-1]["messages"]):
        raise WrongAnswer(f"the turn ended with {result.messages[-1]!r}")
    return seconds
