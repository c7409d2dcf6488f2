"""A team whose agents hand the task over: a clerk reads an invoice, an accountant goes on in the same session.

python samples/handoff_team.py                 recorded models, no key needed
python samples/handoff_team.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio

from autogen_agentchat.conditions import TextMessageTermination
from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor
from autogen_codeact.teams import Budget, Handoff, Team

TASK = """\
What do we have to pay for this invoice, with 19 % tax and 2 % discount on the total?

3 desks at 412.50
12 chairs at 89.90
2 lamps at 34.25
"""

CLERK = [
    """\
```python
lines = ["3 desks at 412.50", "12 chairs at 89.90", "2 lamps at 34.25"]
items = [(int(line.split()[0]), float(line.split()[-1])) for line in lines]
net = round(sum(count * price for count, price in items), 2)
print("net", net)
transfer_to_accountant("The net sum is in the variable net.")
```
""",
]
ACCOUNTANT = [
    """\
```python
total = round(net * 1.19, 2)
print("to pay", round(total * 0.98, 2))
```
""",
    "We have to pay 2,781.15 euros.",
]


async def main() -> None:
    clerk_model, accountant_model = model_for(CLERK), model_for(ACCOUNTANT)
    async with DockerCommandLineCodeExecutor(mode="session") as executor:
        clerk = CodeActAgent("clerk", executor, model_client=clerk_model, handoffs=["accountant"])
        accountant = CodeActAgent("accountant", executor, model_client=accountant_model)
        team = Team(
            [clerk, accountant],
            speakers=Handoff(),
            termination_condition=TextMessageTermination("accountant"),
            budget=Budget(max_turns=6),
        )
        result = await Console(team.run_stream(task=TASK))
    print(f"\nIt ended because {result.stop_reason}")
    await clerk_model.close()
    await accountant_model.close()


if __name__ == "__main__":
    asyncio.run(main())
