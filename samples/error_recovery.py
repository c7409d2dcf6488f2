"""Code fails and is repaired: the model sees the error, decides to retry, and sends corrected code.

python samples/error_recovery.py                 a recorded model, no key needed
python samples/error_recovery.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio

from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor

TASK = "Print the mean and the population standard deviation (to two places) of 4, 8, 15, 16, 23 and 42."

RECORDING = [
    # First the model forgets an import.
    """\
```python
numbers = [4, 8, 15, 16, 23, 42]
mean = sum(numbers) / len(numbers)
deviation = sqrt(sum((n - mean) ** 2 for n in numbers) / len(numbers))
print("mean:", mean)
print("population standard deviation:", round(deviation, 2))
```
""",
    # Then it is asked for a `RetryDecision`.
    '{"reason": "`sqrt` was never imported. I will import it from `math`.", "retry": true}',
    # Then it repairs the code.
    """\
```python
from math import sqrt

numbers = [4, 8, 15, 16, 23, 42]
mean = sum(numbers) / len(numbers)
deviation = sqrt(sum((n - mean) ** 2 for n in numbers) / len(numbers))
print("mean:", mean)
print("population standard deviation:", round(deviation, 2))
```
""",
    "The mean is 18.0, the population standard deviation 12.32.",
]


async def main() -> None:
    model = model_for(RECORDING)
    async with DockerCommandLineCodeExecutor() as executor:
        agent = CodeExecutorAgent("statistician", executor, model_client=model, max_retries_on_error=2)
        await Console(agent.run_stream(task=TASK))
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
