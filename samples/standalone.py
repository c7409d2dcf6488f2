"""One agent: it writes code, runs it in the sandbox, and answers from its output.

python samples/standalone.py                 a recorded model, no key needed
python samples/standalone.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio

from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor

TASK = "What is the sum of all prime numbers below 10,000?"

RECORDING = [
    """\
I sieve the numbers below 10,000 and add up what is left.

```python
limit = 10_000
is_prime = [False, False] + [True] * (limit - 2)
for n in range(2, int(limit**0.5) + 1):
    if is_prime[n]:
        is_prime[n * n :: n] = [False] * len(is_prime[n * n :: n])
print(sum(n for n in range(limit) if is_prime[n]))
```
""",
    "The sum of all prime numbers below 10,000 is 5,736,396.",
]


async def main() -> None:
    model = model_for(RECORDING)
    async with DockerCommandLineCodeExecutor() as executor:
        agent = CodeExecutorAgent("coder", executor, model_client=model)
        await Console(agent.run_stream(task=TASK))
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
