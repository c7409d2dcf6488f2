"""A team of two: a coder that only writes code, and an executor that only runs the coder's code.

python samples/coder_executor_team.py                 a recorded model, no key needed
python samples/coder_executor_team.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio

from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from autogen_codeact.teams import coder_executor_team

TASK = "On which dates from 2025 to 2030 is the 13th a Friday? How many are there?"

RECORDING = [
    """\
I go through the months of these years.

```python
from datetime import date

fridays = [date(2025 + m // 12, m % 12 + 1, 13) for m in range(6 * 12)]
fridays = [day for day in fridays if day.weekday() == 5]
print(len(fridays), "of them:", *fridays)
```
""",
    """\
That can't be right: 13 September 2025 is a Saturday. Python counts weekdays from 0, so Friday is 4.

```python
from datetime import date

fridays = [date(2025 + m // 12, m % 12 + 1, 13) for m in range(6 * 12)]
fridays = [day for day in fridays if day.weekday() == 4]
print(len(fridays), "of them:", *fridays)
```
""",
    """\
There are 10 of them; the first is 13 June 2025, the last 13 December 2030.

TERMINATE
""",
]


async def main() -> None:
    model = model_for(RECORDING)
    async with DockerCommandLineCodeExecutor() as executor:
        # The same as Team([AssistantAgent("coder", …), CodeExecutorAgent("executor", …)], …).
        team = coder_executor_team(model, executor)
        result = await Console(team.run_stream(task=TASK))
        print("It ended because", result.stop_reason)
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
