"""Print the tokens of tool definitions that a model reads, direct and with `codeact mcp --wrap`, and how well tools are found.

    python benchmarks/wrapped_tools.py FOLDER

FOLDER has BFCL's `func_doc/`, questions and answers of `multi_turn_base`. Counts with the tokenizer of `--model local`. Where
more tools are needed than there are, they are repeated with numbers in their names.
"""

import ast
import asyncio
import json
import sys
import time
from pathlib import Path

from autogen_core.models import SystemMessage
from mcp.types import Tool

from autogen_codeact.local_models import local_model
from codeact_sandbox import AsyncSandbox, McpServer
from codeact_sandbox.integrations.mcp_server import make_server
from codeact_sandbox.integrations.mcp_wrap import Wrapped
from codeact_sandbox.tools.schema_tool import SchemaHostTool
from codeact_sandbox.tools.search import ToolSearch

QUESTIONS, ANSWERS = "BFCL_v4_multi_turn_base.jsonl", "answer_BFCL_v4_multi_turn_base.jsonl"
JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array"}
SIZES = (5, 50, 500)


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


def definitions(tools, instructions=""):
    """Return tools as a client passes them to a model."""
    return instructions + json.dumps([each.model_dump(by_alias=True, exclude_none=True) for each in tools])


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
        some = [
            each.model_copy(update={"name": each.name + (f"_{round_}" if round_ else "")})
            for round_ in range(size // len(known) + 1)
            for each in known
        ][:size]
        answer = "\n\n".join(f"def {tool.name}{tool.signature}:\n{tool.description}" for tool in host_tools(some)[:5])
        before = tokens(definitions(offered, wrapped.instructions))
        print(f"| {size} | {tokens(definitions(some)):,} | {before:,} | {before + tokens(answer):,} |")
    some, every, count = found(folder, host_tools(known))
    print(f"\n{count} questions, {len(known)} tools: {some:.1%} have a right tool in the first five, {every:.1%} all")
    many = host_tools(known) * (2000 // len(known) + 1)
    began = time.process_time()
    ToolSearch(many[:2000])
    print(f"index of 2,000 tools: {(time.process_time() - began) * 1000:.0f} ms")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
