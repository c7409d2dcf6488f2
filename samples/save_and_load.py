"""An agent and its conversation are put into JSON, and another agent goes on where the first one stopped.

python samples/save_and_load.py                 a recorded model, no key needed
python samples/save_and_load.py --model NAME    a real one; its key is in OPENAI_API_KEY

The configuration says what the agent is made of, the state what was said. Neither holds what the code had in memory:
the variables of a session belong to its sandbox and end with it. What has to last, write to a file in `work_dir`.
"""

import asyncio
import json

from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor

BEFORE = [
    """\
```python
a, b = 0, 1
for _ in range(30):
    a, b = b, a + b
fibonacci = a
print(fibonacci)
```
""",
    "The 30th Fibonacci number is 832040. It is in the variable `fibonacci`.",
]
AFTER = [
    """\
I know the number from our conversation; the variable may be gone.

```python
if "fibonacci" not in globals():
    print("the variable is gone")
    fibonacci = 832040
print(fibonacci * 2)
```
""",
    "Twice the 30th Fibonacci number is 1664080. The variable was gone, so I set it again.",
]


async def main() -> None:
    model = model_for(BEFORE)
    async with DockerCommandLineCodeExecutor(mode="session") as executor:
        agent = CodeExecutorAgent("coder", executor, model_client=model, max_retries_on_error=1)
        await Console(agent.run_stream(task="What is the 30th Fibonacci number? Keep it in the variable `fibonacci`."))
        config = agent.dump_component().model_dump_json(indent=2)
        state = json.dumps(await agent.save_state())
    await model.close()

    print(f"The configuration, {len(config)} characters of JSON, begins with\n{config[:400]} ...\n")
    print(
        f"The state, {len(state)} characters of JSON, holds the conversation. The variables went with their sandbox.\n"
    )

    # A recording does not know how far it was, so the loaded agent is given the answers that come next. A real model's
    # configuration is written back as it was; it has no key in it, that is taken from the environment again.
    loaded = json.loads(config)
    loaded["config"]["model_client"] = model_for(AFTER).dump_component().model_dump()

    # The loaded agent's sandbox starts with its first block, and ends with close().
    agent = CodeExecutorAgent.load_component(loaded)
    await agent.load_state(json.loads(state))
    print(f"The loaded agent remembers {len(await agent.model_context.get_messages())} messages.\n")
    await Console(agent.run_stream(task="What is twice that number?"))
    await agent.close()


if __name__ == "__main__":
    asyncio.run(main())
