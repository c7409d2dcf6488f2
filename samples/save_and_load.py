"""Saves an agent and its state as JSON; another agent loads them and continues where the first one stopped.

python samples/save_and_load.py                 a recorded model, no key needed
python samples/save_and_load.py --model NAME    a real model; its key is in OPENAI_API_KEY

The configuration describes the agent. The state contains the conversation and the code that ran in the session. The code runs
again in the new sandbox, so its variables are defined there. Host tools are not called again; their results are in the state.
Neither contains files: these are in `work_dir`.
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
The variable is still there.

```python
print(fibonacci * 2)
```
""",
    "Twice the 30th Fibonacci number is 1664080.",
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
        f"The state, {len(state)} characters of JSON, contains the conversation and the code. The sandbox has ended.\n"
    )

    # A recorded model starts from its first answer again, so the loaded agent gets the remaining answers. A real model needs
    # no change: its configuration contains no key; the key is read from the environment again.
    loaded = json.loads(config)
    loaded["config"]["model_client"] = model_for(AFTER).dump_component().model_dump()

    # The loaded agent's sandbox starts when the recorded code runs again, and ends with close().
    agent = CodeExecutorAgent.load_component(loaded)
    await agent.load_state(json.loads(state))
    print(f"The loaded agent remembers {len(await agent.model_context.get_messages())} messages.\n")
    await Console(agent.run_stream(task="What is twice that number?"))
    await agent.close()


if __name__ == "__main__":
    asyncio.run(main())
