"""Print what many tools cost: tokens that a model reads, direct, with `codeact mcp --wrap` and of an agent; time of a start.

Also how well a search finds them.

    python benchmarks/wrapped_tools.py FOLDER

FOLDER has BFCL's `func_doc/`, questions and answers of `multi_turn_base`. Counts with the tokenizer of `--model local`. Where
more tools are needed than there are, they are repeated with numbers in their names; in the search, functions of Python's
standard library are added.
"""

import ast
import asyncio
import importlib
import inspect
import json
import statistics
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from autogen_core.models import SystemMessage
from mcp.types import Tool

from autogen_codeact.agents.codeact_prompt import TASK, system_message
from autogen_codeact.local_models import local_model
from codeact_sandbox import AsyncSandbox, McpServer, ToolSource
from codeact_sandbox.integrations.mcp_server import make_server
from codeact_sandbox.integrations.mcp_wrap import Wrapped
from codeact_sandbox.tools.schema_tool import SchemaHostTool
from codeact_sandbox.tools.search import ToolSearch
from codeact_sandbox.toolset import grouped

QUESTIONS, ANSWERS = "BFCL_v4_multi_turn_base.jsonl", "answer_BFCL_v4_multi_turn_base.jsonl"
JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array"}
SIZES = (5, 50, 500)
STARTS = 7
MODULES = """argparse bisect calendar collections configparser csv datetime decimal difflib email.utils fractions getpass gzip
hashlib heapq html http.client imaplib ipaddress json locale logging mailbox mimetypes netrc poplib random sched secrets shelve
smtplib socket sqlite3 ssl string tarfile textwrap timeit tomllib unicodedata urllib.parse urllib.request uuid wave webbrowser
xml.etree.ElementTree zipfile zoneinfo"""


def rows(path):
    """Return the objects of a file with one on each line."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def as_json_schema(recorded):
    """Convert a recorded schema, which names types as Python does."""
    if isinstance(recorded, list):
        return [as_json_schema(each) for each in recorded]
    if not isinstance(recorded, dict):
        return recorded
    schema = {key: as_json_schema(value) for key, value in recorded.items()}
    if isinstance(kind := schema.get("type"), str):
        schema["type"] = JSON_TYPES.get(kind, kind)
        if kind == "any":
            del schema["type"]
    return schema


def tools_in(folder):
    """Return the recorded tools as those of an MCP server."""
    return [
        Tool(
            name=each["name"],
            description=each["description"],
            inputSchema=as_json_schema(each["parameters"]),
            outputSchema=as_json_schema(each["response"]) if each.get("response") else None,
        )
        for file in sorted((folder / "func_doc").glob("*.json"))
        for each in rows(file)
    ]


def host_tools(tools):
    """Return them as host tools, which can't be called."""
    return [
        SchemaHostTool(each.name, each.description, each.inputSchema, None, "BFCL", result=each.outputSchema)
        for each in tools
    ]


def found(folder, tools, limit=5):
    """Return the share of questions with a tool of their answer among the first, and of those with all of them."""
    index = ToolSearch(tools)
    some, every, count = 0, 0, 0
    for question, answer in zip(rows(folder / QUESTIONS), rows(folder / ANSWERS), strict=True):
        for messages, calls in zip(question["question"], answer["ground_truth"], strict=True):
            right = {ast.parse(call).body[0].value.func.id for call in calls}
            if right and messages:
                text = " ".join(message["content"] for message in messages)
                names = {tool.name for tool in index.search(text, limit)}
                some, every, count = some + bool(right & names), every + (right <= names), count + 1
    return some / count, every / count, count


def distractors(count):
    """Return functions of the standard library, described as tools are, to be searched beside others."""
    found = {}
    for name in MODULES.split():
        module = importlib.import_module(name)
        classes = [each for _, each in inspect.getmembers(module, inspect.isclass) if each.__module__ == name]
        for each in (module, *classes):
            for own, function in inspect.getmembers(each, inspect.isroutine):
                signature = _signature(function)
                if signature and function.__doc__ and not own.startswith("_"):
                    found.setdefault(own, (f"{name.replace('.', '_')}.{own}", signature, function.__doc__))
    step = len(found) // count
    fields = ("name", "signature", "description")
    return [SimpleNamespace(**dict(zip(fields, each, strict=True))) for each in list(found.values())[::step][:count]]


def _signature(function):
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        return ""


class Server(ToolSource):
    """A server with these tools."""

    def __init__(self, tools):
        """Make it."""
        super().__init__("bfcl")
        self.group, self._tools = "bfcl", tools

    async def open(self):
        """Do nothing."""

    async def close(self):
        """Do nothing."""

    async def list_tools(self):
        """Read the schemas, as for an MCP server."""
        return await asyncio.to_thread(host_tools, self._tools)


async def starts(tools):
    """Return milliseconds of a start with a first block, with tools and without, for each backend."""
    for backend in ("docker", "bubblewrap"):
        times = [[], []]
        for _ in range(STARTS):
            for known, some in zip(times, ([], [Server(tools)]), strict=True):
                began = time.perf_counter()
                async with AsyncSandbox(backend, tools=some) as box:
                    await box.run("1")
                    known.append(1000 * (time.perf_counter() - began))
        without, with_all = map(statistics.median, times)
        print(f"{backend}: start without tools {without:.0f} ms, with {len(tools):,} {with_all:.0f} ms")


def definitions(tools, instructions=""):
    """Return tools as a client passes them to a model."""
    return instructions + json.dumps([each.model_dump(by_alias=True, exclude_none=True) for each in tools])


def repeated(tools, size):
    """Return as many tools, by repeating them."""
    return [
        each.model_copy(update={"name": each.name + (f"_{round_}" if round_ else "")})
        for round_ in range(size // len(tools) + 1)
        for each in tools
    ][:size]


async def main(folder):
    """Print both tables."""
    model = local_model()

    def tokens(text):
        return model.count_tokens([SystemMessage(content=text)]) - model.count_tokens([SystemMessage(content="")])

    known = tools_in(folder)
    wrapped = Wrapped([McpServer("bfcl")])
    offered = await make_server(AsyncSandbox("bubblewrap"), wrapped).list_tools()
    print("| tools | direct | wrapped | and a search |\n|---|---|---|---|")
    for size in SIZES:
        some = repeated(known, size)
        answer = "\n\n".join(f"def {tool.name}{tool.signature}:\n{tool.description}" for tool in host_tools(some)[:5])
        before = tokens(definitions(offered, wrapped.instructions))
        print(f"| {size} | {tokens(definitions(some)):,} | {before:,} | {before + tokens(answer):,} |")
    some, every, count = found(folder, host_tools(known))
    print(f"\n{count} questions, {len(known)} tools: {some:.1%} have a right tool in the first five, {every:.1%} all")
    some, every, count = found(folder, host_tools(known) + distractors(500 - len(known)))
    print(f"among 500 tools: {some:.1%}, {every:.1%}")
    agent = grouped([("bfcl", host_tools(repeated(known, 500)))])
    print(
        f"system message of an agent with 500 tools: {tokens(system_message(TASK, style='markdown', tools=agent))} tokens"
    )
    numbered = [
        each.model_copy(update={"name": f"{each.name}_{number}"}) for number, each in enumerate(repeated(known, 2000))
    ]
    await starts(numbered)
    many = host_tools(known) * (2000 // len(known) + 1)
    began = time.process_time()
    ToolSearch(many[:2000])
    print(f"index of 2,000 tools: {(time.process_time() - began) * 1000:.0f} ms")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
