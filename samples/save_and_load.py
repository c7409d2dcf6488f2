"""An agent and its conversation are put into JSON, and another agent goes on where the first one stopped.

python samples/save_and_load.py                 a recorded model, no key needed
python samples/save_and_load.py --model NAME    a real one; its key is in OPENAI_API_KEY

The configuration says what the agent is made of, the state what was said, and which code was run in the session. It is run
again in the other sandbox, so that the variables are there; a host tool would not be called again, but answered from the record.
Files are in neither: what has to last, write to a file in `work_dir`.
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
    print(f"The state, {len(state)} characters of JSON, holds the conversation and the code. The sandbox is gone.\n")

    # A recording does not know how far it was, so the loaded agent is given the answers that come next. A real model's
    # configuration is written back as it was; it has no key in it, that is taken from the environment again.
    loaded = json.loads(config)
    loaded["config"]["model_client"] = model_for(AFTER).dump_component().model_dump()

    # The loaded agent's sandbox starts with its first block, which is one of the record, and ends with close().
    agent = CodeExecutorAgent.load_component(loaded)
    await agent.load_state(json.loads(state))
    print(f"The loaded agent remembers {len(await agent.model_context.get_messages())} messages.\n")
    await Console(agent.run_stream(task="What is twice that number?"))
    await agent.close()


if __name__ == "__main__":
    asyncio.run(main())
