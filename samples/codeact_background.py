"""A server in the background: code starts it, and later code uses it while it runs.

python samples/codeact_background.py                 a recorded model, no key needed
python samples/codeact_background.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio

from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor

TASK = "Serve a page that says Hello on port 8000, and test it."

RECORDING = [
    """\
```python
open("index.html", "w").write("<h1>Hello</h1>")
job = run_in_background("python3 -m http.server 8000 --bind 127.0.0.1")
while "Serving" not in job.output():
    job.wait(0.1)
```
""",
    """\
```python
import urllib.request

with urllib.request.urlopen("http://127.0.0.1:8000/") as answer:
    print(answer.status, answer.read().decode())
print("exit code", job.stop())
```
""",
    "The server answers with a page that says Hello.",
]


async def main() -> None:
    model = model_for(RECORDING)
    async with DockerCommandLineCodeExecutor(mode="session") as executor:
        agent = CodeActAgent("tester", executor, model_client=model, background=True)
        await Console(agent.run_stream(task=TASK))
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
