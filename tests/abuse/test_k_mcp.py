"""K24 and K25. MCP servers as sources of host tools that break the rules of schemas, results and the protocol."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

from autogen_codeact.executors.tools.host_tools import HostTools
from codeact_sandbox import McpServer

from .lag import MOST_EXCESS_S, LoopLag

SERVER = Path(__file__).parents[1] / "executors" / "mcp_hostile.py"
TEXT = [{"type": "text", "text": "ok"}]


each_client = pytest.mark.parametrize("own", [False, True], ids=["McpWorkbench", "McpServer"])


async def call(own: bool, **case: Any) -> Any:
    """Call the tool of a server with AutoGen's client or ours; return what it gives or raises."""
    arguments = [str(SERVER), json.dumps(case)]
    workbench = McpWorkbench(StdioServerParams(command=sys.executable, args=arguments, read_timeout_seconds=20))
    tools = HostTools([McpServer([sys.executable, *arguments], name="odd") if own else workbench])
    try:
        await tools.start()
        (tool,) = tools.known or ()
        return (await tool.run({})).value
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return error
    finally:
        await tools.stop()


def of(**properties: Any) -> Mapping[str, Any]:
    """The schema of an object."""
    return {"type": "object", "properties": properties, "required": list(properties)}


# Case K24.
@each_client
async def test_results_are_not_checked_with_a_servers_own_patterns(own: bool) -> None:
    """They ran on the event loop, inside one call of the interpreter: 28 letters take half a minute, 40 for ever."""
    letters = "a" * 28 + "!"
    cases = {
        "pattern": (of(x={"type": "string", "pattern": "^(a+)+$"}), {"x": letters}),
        "patternProperties": ({"type": "object", "patternProperties": {"^(a+)+$": {}}}, {letters: 1}),
    }
    for name, (schema, result) in cases.items():
        async with LoopLag() as lag:
            assert await call(own, schema=schema, content=TEXT, result=result) == result, name
        assert lag.excess_s < 20 * MOST_EXCESS_S, name


# Case K25.
@each_client
async def test_a_picture_that_is_none_is_an_error_of_the_call(own: bool) -> None:
    for data in ("%%%", "AAAA"):
        picture = [{"type": "image", "data": data, "mimeType": "image/png"}]
        assert "cannot identify image file" in str(await call(own, content=picture))
