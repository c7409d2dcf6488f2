"""Code in the sandbox calls a function of the host that asks a user on the terminal, and waits for the answer.

python samples/codeact_ask_user.py                 a recorded model, no key needed
python samples/codeact_ask_user.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio

from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor, ToolLimits

TASK = "Ask the user for a number until it is a prime number, and say how many tries it took."
ANSWER_WITHIN_S = 600

RECORDING = [
    """\
```python
def is_prime(number):
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))

tries = 1
while not is_prime(number := int(ask_user("A prime number, please:"))):
    tries += 1
print(number, "is prime, after", tries, "tries")
```
""",
    "It worked.",
]


def ask_user(question: str) -> str:
    """Ask the user on the terminal and return the answer."""
    print(f"\n{question}", flush=True)
    return input()


async def main() -> None:
    model = model_for(RECORDING)
    # Leave a user enough time to answer.
    limits = ToolLimits(seconds=ANSWER_WITHIN_S)
    async with DockerCommandLineCodeExecutor(mode="session", timeout=ANSWER_WITHIN_S, tool_limits=limits) as executor:
        agent = CodeActAgent("asker", executor, model_client=model, tools=[ask_user])
        await Console(agent.run_stream(task=TASK))
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
