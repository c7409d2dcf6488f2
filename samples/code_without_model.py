"""Runs code that another agent or a user wrote, without a model.

python samples/code_without_model.py
"""

import asyncio

from autogen_agentchat.messages import TextMessage
from autogen_agentchat.ui import Console

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor

GREETING = """\
Count the words, and then the lines:

```python
text = "to be or not to be"
print(len(text.split()), "words")
open("text.txt", "w").write(text + chr(10))
```

```sh
echo "$(wc -l < text.txt) line"
```
"""

BROKEN = """\
```python
print("dividing")
print(1 / 0)
```
"""


async def main() -> None:
    print("No model is used here: the code is in the messages.\n")
    async with DockerCommandLineCodeExecutor() as executor:
        # Only code in messages of alice runs. Without `sources`, code in all messages runs.
        agent = CodeExecutorAgent("runner", executor, sources=["alice"])

        # All blocks of a message run one after the other, in the same workspace.
        await Console(agent.run_stream(task=TextMessage(content=GREETING, source="alice")))

        # If code fails, the agent answers with the error. The metadata of the answer contain the same for programs.
        result = await Console(agent.run_stream(task=TextMessage(content=BROKEN, source="alice")))
        print("metadata:", result.messages[-1].metadata)

        await Console(agent.run_stream(task=TextMessage(content=GREETING, source="mallory")))


if __name__ == "__main__":
    asyncio.run(main())
