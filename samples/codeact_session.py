"""The session persists between runs: the second run uses a function that the first run has defined.

python samples/codeact_session.py                 a recorded model, no key needed
python samples/codeact_session.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio

from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor

TASKS = ["Show the first 10 Fibonacci numbers.", "Now the first 20, with the function that you have."]

RECORDING = [
    """\
```python
def fibonacci(count):
    numbers = [0, 1]
    while len(numbers) < count:
        numbers.append(numbers[-1] + numbers[-2])
    return numbers[:count]

fibonacci(10)
```
""",
    "The first 10 Fibonacci numbers are 0, 1, 1, 2, 3, 5, 8, 13, 21 and 34.",
    """\
```python
print(*fibonacci(20))
```
""",
    "The first 20 end with 2584 and 4181.",
]


async def main() -> None:
    model = model_for(RECORDING)
    async with DockerCommandLineCodeExecutor(mode="session") as executor:
        agent = CodeActAgent("mathematician", executor, model_client=model)
        for task in TASKS:
            await Console(agent.run_stream(task=task))
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
