"""A skill: a folder with instructions and a script, which the agent reads and runs in the sandbox.

python samples/codeact_skills.py                 a recorded model, no key needed
python samples/codeact_skills.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio
from pathlib import Path

from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor

TASK = "An invoice has the lines 612.345, 399.995 and 88.005. What is its total?"

RECORDING = [
    """\
```sh
cat /skills/invoice-totals/SKILL.md
```
""",
    """\
```sh
python /skills/invoice-totals/scripts/total.py 612.345 399.995 88.005
```
""",
    "The total is 1078.34, with the discount.",
]


async def main() -> None:
    model = model_for(RECORDING)
    # The model is told the skill's name and description; it reads the rest when a task needs it.
    skills = [Path(__file__).parent / "skills"]
    async with DockerCommandLineCodeExecutor(mode="session", skills=skills) as executor:
        agent = CodeActAgent("clerk", executor, model_client=model)
        await Console(agent.run_stream(task=TASK))
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
