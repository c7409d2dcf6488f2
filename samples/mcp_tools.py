"""Code in the sandbox calls the tools of an MCP server as functions and combines their results.

python samples/mcp_tools.py                 a recorded model, no key needed
python samples/mcp_tools.py --model NAME    a real model; its key is in OPENAI_API_KEY

Needs the extra `mcp` of this package. The server is mcp_server.py; it is connected over its standard input and output.
"""

import asyncio
import sys
from pathlib import Path

from autogen_agentchat.ui import Console
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams
from models import model_for

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import AllowTools, DockerCommandLineCodeExecutor

SERVER = StdioServerParams(command=sys.executable, args=[str(Path(__file__).with_name("mcp_server.py"))])

TASK = "Which of the cities on the server is the warmest, and how much warmer than the coldest? Do it in one program."

RECORDING = [
    """\
```python
temperatures = {city: temperature(city)["celsius"] for city in list_cities()}
warmest, coldest = max(temperatures, key=temperatures.get), min(temperatures, key=temperatures.get)
print(f"{warmest} is {temperatures[warmest] - temperatures[coldest]:.1f} degrees warmer than {coldest}")
try:
    forget_city(coldest)
except PermissionError as error:
    print("refused:", error)
```
""",
    "Cairo is the warmest city, and much warmer than Oslo.",
]


async def main() -> None:
    model = model_for(RECORDING)
    # A tool that is not on the list is refused; the code gets the reason.
    policy = AllowTools(["McpWorkbench.list_cities", "McpWorkbench.temperature"])
    async with DockerCommandLineCodeExecutor(mode="session") as executor:
        agent = CodeActAgent(
            "meteorologist", executor, model_client=model, tools=[McpWorkbench(SERVER)], approve_tool=policy
        )
        await Console(agent.run_stream(task=TASK))
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
