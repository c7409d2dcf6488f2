"""A client of an MCP server over stdio, for the `mcp` package 1 and 2.

Each line of its input is a list of calls as JSON; it answers with JSON lines: the names of the tools, what it gets for each
call, and null.
"""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


def show(value: object) -> None:
    print(json.dumps(value), flush=True)


async def show_progress(progress: float, total: float | None, message: str | None) -> None:
    show({"progress": message})


async def make_calls(session: ClientSession, calls: list[tuple[str, dict[str, object], float]]) -> None:
    """Show the tools, then the results of some calls, each of which is cancelled after some seconds."""
    tools = (await session.list_tools()).model_dump(mode="json", by_alias=True)["tools"]
    show({"tools": sorted(tool["name"] for tool in tools)})
    for name, arguments, seconds in calls:
        call = session.call_tool(name, arguments, progress_callback=show_progress)
        try:
            answer = (await asyncio.wait_for(call, seconds)).model_dump(mode="json", by_alias=True)
        except TimeoutError:
            show({"cancelled": name})
            continue
        content = [[item["type"], item.get("text", item.get("mimeType"))] for item in answer["content"]]
        show({"error": answer["isError"], "content": content})
    show(None)


async def main() -> None:
    """Start the server whose command is the argument, as JSON, and serve until the end of the input."""
    command = json.loads(sys.argv[1])
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        while line := await asyncio.to_thread(sys.stdin.readline):
            await make_calls(session, json.loads(line))


asyncio.run(main())
