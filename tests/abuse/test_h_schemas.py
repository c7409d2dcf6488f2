"""H8, K24 and K25. Third parties' tools: no text of a schema becomes code, and a broken server is an error of its call."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams

from autogen_codeact.executors.tools.host_tools import HostTools
from codeact_sandbox import McpServer
from tests.executors.schema_workbench import SchemaWorkbench

from .lag import MOST_EXCESS_S, LoopLag
from .oracles import MIB
from .subject import Subject, each_engine

# Each would leave a mark in the interpreter if any of its text ran as code, however it is quoted.
RUNS = "__import__('builtins').__dict__.__setitem__('SCHEMA_RAN', 1)"
TEXTS = [
    RUNS,
    f"object, {RUNS}",
    f"x: {RUNS}",
    f"x = {RUNS}",
    f"x={RUNS}, y",
    f"x)\n{RUNS}\n(",
    f'"""\n{RUNS}\n"""',
    f'\\"""\n{RUNS}\n\\"""',
    f"'''\n{RUNS}\n'''",
    f"'+{RUNS}+'",
    f'"+{RUNS}+"',
    f"\\'+{RUNS}#",
    f"\r{RUNS}\r",
    f"\x0c\n{RUNS}",
    f"\u2028{RUNS}\u2028",
    f"Literal[{RUNS}]",
    f"list[{RUNS}]",
    f"{{{RUNS}}}",
    f"%({RUNS})s",
    f"class:{RUNS}",
    f"#/$defs/{RUNS}",
]


def workbench(schemas: list[Any]) -> SchemaWorkbench:
    """A third party's tools, as a server describes them; each answers with its arguments."""
    return SchemaWorkbench(schemas, lambda _, arguments: json.dumps(arguments))


def hostile(number: int, text: str) -> dict[str, Any]:
    """A tool with this text in each position of its schema where a server can put one."""
    python = {
        "kind": "enum",
        "base": text,
        "members": [[text, text], ["A", text]],
        "keys": {"type": text, "format": text, "$ref": text},
    }
    enum = {"title": text, "description": text, "enum": [text, 1, None], "x-python": python}
    nested = {
        "type": "object",
        "title": text,
        "description": text,
        "x-python": {**python, "kind": text},
        "properties": {
            text: {"type": "string", "description": text, "default": text},
            "tagged": {"const": text, "x-python": python},
            "listed": {"type": "array", "items": {"$ref": f"#/$defs/{text}"}, "default": [text]},
        },
        "required": [text],
    }
    return {
        "name": f"tool_{number}",
        "description": text,
        "parameters": {
            "type": "object",
            "title": text,
            "description": text,
            "x-python": python,
            "$defs": {text: nested, "E": enum, "Q": {**enum, "x-python": {**python, "members": [["A", "b"]]}}},
            "properties": {
                text: {"type": "string", "format": text, "description": text, "default": text},
                "plain": {"type": "string", "description": text, "default": {text: text}},
                "nested": {"$ref": f"#/$defs/{text}", "default": {text: text}},
                "inline": nested,
                "choice": enum,
                "enum": {"$ref": "#/$defs/E"},
                "base": {"$ref": "#/$defs/Q"},
                "away": {"$ref": text},
                "mixed": {"anyOf": [{"$ref": "#/$defs/E"}, nested], "x-python": python},
                "typed": {"type": "string", "title": text},
                "mapped": {"type": "object", "additionalProperties": nested, "x-python": python},
                "tuple": {"type": "array", "prefixItems": [enum, nested], "x-python": {"kind": "tuple"}},
            },
            "required": [text],
        },
    }


LOOK = """
    import builtins, host_tools, inspect, typing
    assert not hasattr(builtins, "SCHEMA_RAN"), "text of a schema has run as code"
    for name in host_tools.__all__:
        thing = getattr(host_tools, name)
        inspect.signature(thing), inspect.getdoc(thing), repr(thing)
        if name.startswith("tool_"):
            str(inspect.signature(thing)), typing.get_type_hints(thing), thing.__annotations__
    assert not hasattr(builtins, "SCHEMA_RAN"), "text of a schema has run as code"
    print(sum(name.startswith("tool_") for name in host_tools.__all__))
"""


# Case H8.
@each_engine
async def test_no_text_of_a_schema_runs_as_code(subject: Subject) -> None:
    schemas = [hostile(number, text) for number, text in enumerate(TEXTS)]
    await subject.start({"tools": [workbench(schemas)]})
    assert await subject.out(LOOK) == f"{len(TEXTS)}\n"


def tool(parameters: dict[str, Any], name: str = "tool_0") -> dict[str, Any]:
    """A tool with these parameters."""
    return {"name": name, "description": "", "parameters": {"type": "object", **parameters}}


def chain(of: int, make: Any) -> dict[str, Any]:
    """Definitions of which each refers to the next."""
    return {f"D{n}": make({"$ref": f"#/$defs/D{n + 1}"}) for n in range(of)} | {f"D{of}": {"type": "string"}}


START = {"properties": {"thing": {"$ref": "#/$defs/D0"}}}
LARGE = {
    "10,000 properties": {"properties": {f"p{n}": {"type": "string", "default": "x"} for n in range(10_000)}},
    "400 classes": {
        "properties": {
            f"p{n}": {"title": "Same", "type": "object", "properties": {f"q{n}": {"type": "string"}}}
            for n in range(400)
        }
    },
    "recursion": {**START, "$defs": {"D0": {"type": "object", "properties": {"again": {"$ref": "#/$defs/D0"}}}}},
    "an alias of itself": {**START, "$defs": {"D0": {"anyOf": [{"$ref": "#/$defs/D0"}, {"$ref": "#/$defs/D0"}]}}},
    "itself": {"properties": {"thing": {"$ref": "#"}}},
    "a chain of classes": {**START, "$defs": chain(1200, lambda r: {"type": "object", "properties": {"next": r}})},
    "doubled lists": {**START, "$defs": chain(50, lambda r: {"type": "array", "prefixItems": [r, r]})},
    "doubled choices": {**START, "$defs": chain(50, lambda r: {"anyOf": [{"type": "array", "items": r}, r]})},
    "doubled requirements": {**START, "$defs": chain(50, lambda r: {"allOf": [r, r]})},
}


# Case H8.
@each_engine
async def test_large_and_recursive_schemas_cost_little(subject: Subject) -> None:
    tools = [tool(schema, f"tool_{number}") for number, schema in enumerate(LARGE.values())]
    subject.kept = 64 * MIB  # what was read of them stays as long as the tools
    async with LoopLag() as lag:
        await subject.start({"tools": [workbench(tools)]})
        await subject.out("print(tool_0(p1='a', p9999='b'))")
        for number in range(2, 9):
            code = f"try: print(tool_{number}(thing='x'))\nexcept TypeError as error: print(error)"
            await subject.out(code)
    assert lag.excess_s < 2 * MOST_EXCESS_S
    assert await subject.out("print(tool_1(p1={'q1': 'a'}))") == '{"p1": {"q1": "a"}}\n'


# Case H8.
@pytest.mark.parametrize("text", ["b" * 2_000_000, "[" * 1_000])
async def test_a_schema_that_is_too_large_is_refused_by_name(text: str) -> None:
    value: Any = text
    if text.startswith("["):
        for _ in text:
            value = [value]
    with pytest.raises(ValueError, match="The JSON schema of `tool_0` of the SchemaWorkbench can't be used"):
        await HostTools([workbench([tool({"properties": {"a": value}})])]).start()


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
