"""A session in which numpy is imported as `np` from the start.

python samples/codeact_numpy.py                 a recorded model, no key needed
python samples/codeact_numpy.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio

from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor

TASK = "Solve 3x + 2y = 12 and x - y = -1, and give the determinant of the system."

RECORDING = [
    """\
```python
system = np.array([[3.0, 2.0], [1.0, -1.0]])
x, y = np.linalg.solve(system, np.array([12.0, -1.0]))
print(f"x = {x:.3f}, y = {y:.3f}, determinant {np.linalg.det(system):.3f}")
```
""",
    "x is 2 and y is 3; the determinant is -5.",
]


async def main() -> None:
    model = model_for(RECORDING)
    # `preload` imports numpy before the session starts, so no step has to. `setup` runs first in each new session and
    # names the module `np`; the model is told about it.
    async with DockerCommandLineCodeExecutor(mode="session", preload=["numpy"]) as executor:
        agent = CodeActAgent("solver", executor, model_client=model, setup="import numpy as np")
        await Console(agent.run_stream(task=TASK))
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
