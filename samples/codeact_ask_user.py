"""Code that asks a person: a function of the host waits for an answer on the terminal while the code in the sandbox waits for it.

python samples/codeact_ask_user.py                 a recorded model, no key needed
python samples/codeact_ask_user.py --model NAME    a real one; its key is in OPENAI_API_KEY
"""

import asyncio

from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor, ToolLimits

TASK = "Ask the user for a number until it is a prime number, and tell how many tries it took."
PATIENCE_S = 600

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
    """Ask the user, who sits at the terminal, and wait for the answer."""
    print(f"\n{question}", flush=True)
    return input()


async def main() -> None:
    model = model_for(RECORDING)
    # A person takes longer than a function does.
    limits = ToolLimits(seconds=PATIENCE_S)
    async with DockerCommandLineCodeExecutor(mode="session", timeout=PATIENCE_S, tool_limits=limits) as executor:
        agent = CodeActAgent("asker", executor, model_client=model, tools=[ask_user])
        await Console(agent.run_stream(task=TASK))
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
