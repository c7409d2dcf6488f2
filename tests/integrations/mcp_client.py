"""A client of an MCP server over stdio, for the `mcp` package 1 and 2; it prints what it gets as JSON lines."""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> None:
    """Run the calls that the arguments give: the server's command, then the calls, both as JSON."""
    command, calls = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    parameters = StdioServerParameters(command=command[0], args=command[1:])

    async def show_progress(progress: float, total: float | None, message: str | None) -> None:
        print(json.dumps({"progress": message}), flush=True)

    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = (await session.list_tools()).model_dump(mode="json", by_alias=True)["tools"]
        print(json.dumps({"tools": sorted(tool["name"] for tool in tools)}), flush=True)
        for name, arguments, seconds in calls:
            call = session.call_tool(name, arguments, progress_callback=show_progress)
            try:
                answer = (await asyncio.wait_for(call, seconds)).model_dump(mode="json", by_alias=True)
            except TimeoutError:
                print(json.dumps({"cancelled": name}), flush=True)
                continue
            content = [[item["type"], item.get("text", item.get("mimeType"))] for item in answer["content"]]
            print(json.dumps({"error": answer["isError"], "content": content}), flush=True)


asyncio.run(main())
