"""Many tools: the model gets some of their names, finds the others with `search_tools`, and calls them as functions of a module.

python samples/codeact_many_tools.py                 a recorded model, no key needed
python samples/codeact_many_tools.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio
from collections.abc import Sequence

from autogen_agentchat.ui import Console
from models import model_for

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor, HostTool
from codeact_sandbox import ToolSource

METRES = {
    "metre": 1.0,
    "kilometre": 1000.0,
    "centimetre": 0.01,
    "millimetre": 0.001,
    "inch": 0.0254,
    "foot": 0.3048,
    "yard": 0.9144,
    "mile": 1609.344,
    "nautical_mile": 1852.0,
    "fathom": 1.8288,
    "furlong": 201.168,
    "chain": 20.1168,
}

TASK = "A wreck lies 17 fathoms deep. How many feet is that?"

RECORDING = [
    """\
```python
print(search_tools("fathom to foot", limit=2))
```
""",
    """\
```python
print(f"{units.fathom_to_foot(17):.1f} feet")
```
""",
    "17 fathoms are 102 feet.",
]


class Units(ToolSource):
    """A source of a tool for each pair of units; an MCP server, `McpServer("…")`, is another one."""

    group = "units"

    async def open(self) -> None:
        """Do nothing; a server would be started here."""

    async def list_tools(self) -> Sequence[HostTool]:
        """List the tools."""
        return [conversion(one, other) for one in METRES for other in METRES if one != other]

    async def close(self) -> None:
        """Do nothing."""


def conversion(one: str, other: str) -> HostTool:
    """Make a tool that converts lengths."""

    def convert(length: float) -> float:
        return length * METRES[one] / METRES[other]

    convert.__name__ = f"{one}_to_{other}"
    convert.__doc__ = f"Convert a length from {one} to {other}."
    return HostTool(convert)


async def main() -> None:
    model = model_for(RECORDING)
    async with DockerCommandLineCodeExecutor(mode="session") as executor:
        agent = CodeActAgent("diver", executor, model_client=model, tools=[Units("units")])
        await Console(agent.run_stream(task=TASK))
    await model.close()


if __name__ == "__main__":
    asyncio.run(main())
