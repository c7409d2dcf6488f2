"""Code in the sandbox calls functions of this program; they run here, in this process.

python samples/codeact_tools.py                 a recorded model, no key needed
python samples/codeact_tools.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio

from autogen_agentchat.messages import CodeExecutionEvent
from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor, ExecutionResult

TASKS = [
    "Sum up the numbers from 1 to 10. Use `add` for each addition.",
    "Add 5 and 3, then multiply the result by 2. Use the functions of the host.",
]

RECORDING = [
    """\
```python
total = 0
for number in range(1, 11):
    total = add(total, number)
final_answer(total)
```
""",
    """\
```python
final_answer(multiply(add(5, 3), 2))
```
""",
]


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers."""
    return a * b


async def main() -> None:
    model = model_for(RECORDING)
    async with DockerCommandLineCodeExecutor(mode="session") as executor:
        agent = CodeActAgent("calculator", executor, model_client=model, tools=[add, multiply])
        for task in TASKS:
            result = await Console(agent.run_stream(task=task))
            # The result of each block contains its calls.
            calls = [
                call
                for message in result.messages
                if isinstance(message, CodeExecutionEvent) and isinstance(message.result, ExecutionResult)
                for call in message.result.tool_calls
                if call.name != "final_answer"
            ]
            print("Calls from the sandbox:", *(f"{call.name} -> {call.result}" for call in calls), sep="\n  ")
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
