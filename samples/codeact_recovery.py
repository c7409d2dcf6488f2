"""Code fails and the session continues: variables from before the error are kept, and the model uses them.

python samples/codeact_recovery.py                 a recorded model, no key needed
python samples/codeact_recovery.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio

from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor

PRICES = {"kettle": 24.5, "teapot": 39.0, "cup": 4.25}

TASK = "What do a kettle, two teapots, four cups and a tray cost together? Leave out what is not sold, and say so."

RECORDING = [
    """\
```python
wanted = {"kettle": 1, "teapot": 2, "cup": 4, "tray": 1}
costs = {}
for product, units in wanted.items():
    costs[product] = units * price(product)
print(sum(costs.values()))
```
""",
    """\
There is no tray. The other costs are known already.
```python
print(f"{sum(costs.values()):.2f} for", ", ".join(costs), "without", ", ".join(wanted.keys() - costs))
```
""",
    "Together they cost 119.50; a tray is not sold there, so it is left out.",
]


def price(product: str) -> float:
    """Return the price of one piece."""
    if product not in PRICES:
        raise LookupError(f"we sell no {product}")
    return PRICES[product]


async def main() -> None:
    model = model_for(RECORDING)
    async with DockerCommandLineCodeExecutor(mode="session") as executor:
        agent = CodeActAgent("shopper", executor, model_client=model, tools=[price])
        await Console(agent.run_stream(task=TASK))
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
