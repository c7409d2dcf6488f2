"""Three attempts at each step, in branches of the session: the first that passes a check is kept, the others leave no trace.

python samples/codeact_attempts.py                 a recorded model, no key needed
python samples/codeact_attempts.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio

from autogen_agentchat.messages import CodeGenerationEvent
from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor

TASK = "Sort the list `sales` by turnover, the highest first, and print it. Which products sold best?"
SETUP = "sales = [('cup', 85.0), ('kettle', 142.0)]"
CHECK = "assert [turnover for _, turnover in sales] == [142.0, 85.0], sales"

RECORDING = [
    "```python\nsales.sort(key=lambda sale: sale.turnover)\nprint(sales)\n```",
    "```python\nsales.sort()\nprint(sales)\n```",
    "```python\nsales.sort(key=lambda sale: sale[1], reverse=True)\nprint(sales)\n```",
    "The kettle sold best, then the cup.",
    "The kettle sold best, then the cup.",
    "The kettle sold best, then the cup.",
]


async def main() -> None:
    model = model_for(RECORDING)
    async with DockerCommandLineCodeExecutor(mode="session") as executor:
        agent = CodeActAgent("sorter", executor, model_client=model, attempts=3, check=CHECK, setup=SETUP)
        result = await Console(agent.run_stream(task=TASK))
    for event in result.messages:
        if isinstance(event, CodeGenerationEvent):
            print(f"Attempt {event.metadata['kept']} of {event.metadata['attempts']} was kept.")
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
