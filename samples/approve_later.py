"""A run that ends before its code runs, and goes on in another call when somebody has approved the code.

python samples/approve_later.py                 a recorded model, no key needed
python samples/approve_later.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor, Later
from autogen_codeact.runs import RunWaiting, recorded, resumed

RECORDING = ["```python\nprint(2**100)\n```", "2**100 has 31 digits."]


async def main() -> None:
    model = model_for(RECORDING)
    with TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        async with DockerCommandLineCodeExecutor(mode="session") as executor:
            agent = CodeActAgent("coder", executor, model_client=model, approval_func=Later())
            events = recorded(agent, task="What is 2**100?", path=run)
            while True:
                try:
                    await Console(events)
                    break
                except RunWaiting as waiting:
                    print(*waiting.questions.values(), sep="\n")
                    # The process may end here: another one goes on, days later, with an agent made as this one.
                    approved = dict.fromkeys(waiting.questions, True)
                    events = resumed(run, agent=agent, decisions=approved)
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
