"""Many host tools: modules whose functions are made when they are used, and a search."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.agents.codeact_prompt import TASK, system_message
from autogen_codeact.agents.text import shorten
from autogen_codeact.agents.tool_prompt import MAX_NAMES_CHARS
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from codeact_sandbox import AsyncSandbox, HostTool, ToolAnswer, ToolApproval, ToolApprovalRequest, ToolSource
from codeact_sandbox.tools.schema_tool import SchemaHostTool
from codeact_sandbox.tools.search import ToolSearch, are_many
from codeact_sandbox.tools.toolset import Toolset
from codeact_sandbox.types.tool import HostToolProtocol
from tests.agents.codeact import python
from tests.agents.support import scripted

STRING = {"type": "string"}


class Server(ToolSource):
    """A server with many tools, each of which answers with its name and its arguments."""

    def __init__(self, name: str, *tools: str, more: int = 200) -> None:
        super().__init__(name)
        self.group = name
        self._names = [*tools, *(f"work_{number}" for number in range(more))]

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    async def list_tools(self) -> Sequence[HostToolProtocol]:
        """List its tools."""
        return list(map(self._tool, self._names))

    def _tool(self, name: str) -> HostToolProtocol:
        async def call(arguments: Mapping[str, Any]) -> ToolAnswer:
            return ToolAnswer(f"{self.group}.{name} {json.dumps(arguments)}")

        schema = {"type": "object", "properties": {"city": STRING}, "required": ["city"]}
        return SchemaHostTool(name, f'{name} of """{self.group}""" by city \\.', schema, call, self.name, result=STRING)


CODE = """
import asyncio, inspect
print(crm.find(city="Bonn"), wiki.find("Ulm"), asyncio.run(crm.find.aio("Kiel")), len(dir(crm)))
print(inspect.signature(crm.work_7), inspect.getdoc(wiki.find))
help(crm.work_8)
for wrong in (lambda: crm.none, lambda: crm.find(), lambda: search_tools(1)):
    try: wrong()
    except Exception as error: print(str(error).rpartition("TypeError: ")[2])
print(search_tools("find things of crm", 1))
"""
PRINTED = '''\
crm.find {"city": "Bonn"} wiki.find {"city": "Ulm"} crm.find {"city": "Kiel"} 201
(city: str) -> str find of """wiki""" by city \\.
Help on function work_8 in module host_tools:

work_8(city: str) -> str
    work_8 of """crm""" by city \\.

there is no host tool crm.none
crm.find(): missing a required argument: 'city'
search_tools takes a text and a number
def crm.find(city: str) -> str:
    find of """crm""" by city \\.
'''


async def test_functions_of_modules_are_made_when_they_are_used(backend: str) -> None:
    asked = []

    async def approve(request: ToolApprovalRequest) -> ToolApproval:
        asked.append(request.name)
        return ToolApproval(True)

    tools = [Server("crm", "find"), Server("wiki", "find")]
    async with AsyncSandbox(backend, tools=tools, approve_tool=approve) as box:
        result = await box.run(CODE)
        assert result.output == PRINTED
        assert asked == ["crm.find", "wiki.find", "crm.find"]
        assert [call.arguments["stub"] for call in result.tool_calls if "stub" in call.arguments] == [
            "crm.find",
            "wiki.find",
            "crm.work_7",
            "crm.work_8",
        ]
        assert (await box.run("crm.find('Bonn')")).tool_calls[0].name == "crm.find"


MANY = """\
Code can call 401 functions of the host without an import; each call is made at once. Print `search_tools("what is wanted", \
limit=5)` in code to find some with their signatures, or `help(name)` to read one. Some of \
their names:
"""


@pytest.mark.usefixtures("bubblewrap")
async def test_an_agent_is_told_some_names_and_finds_the_others() -> None:
    code = "print(search_tools('find', 1)); print(crm.find('Bonn'))"
    client = scripted(python(code), "Done.")
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        servers = [Server("crm", "find"), Server("wiki")]
        agent = CodeActAgent("a", executor, model_client=client, tools=servers, describe_environment=False)
        await agent.run(task="Go.")
    first, *_, shown = client.create_calls[1]["messages"]
    crm, wiki = (", ".join(f"{group}.work_{number}" for number in range(200)) for group in ("crm", "wiki"))
    room = MAX_NAMES_CHARS // 2
    described = f"- crm: {shorten(f'crm.find, {crm}', room)}\n- wiki: {shorten(wiki, room)}"
    assert first.content == system_message(TASK, style="markdown", languages=["python", "sh", "bash"]).replace(
        "\n\nWhen the task is done", f"\n\n{MANY}{described}\n\nWhen the task is done"
    )
    found = 'def crm.find(city: str) -> str:\n    find of """crm""" by city \\.'
    assert found + """\ncrm.find {"city": "Bonn"}\n""" in shown.content


async def test_too_many_tools_are_refused() -> None:
    with pytest.raises(ValueError, match="A sandbox can have 10,000 tools, not 10,001: leave some out"):
        await Toolset([Server("crm", "find", more=10_000)]).start()
    (tool,) = await Server("crm", "a" * 2_000_000, more=0).list_tools()
    assert are_many([tool])


def find_customer(city: str, vatNumber: str = "") -> list[str]:  # noqa: N803 - names of others
    """Look up who buys from us."""
    raise NotImplementedError


def cancel_orders(number: int) -> None:
    """Cancel an order that has not been sent."""


def names(index: ToolSearch, query: str, limit: int = 5) -> list[str]:
    return [tool.name for tool in index.search(query, limit)]


def test_names_parameters_and_descriptions_are_searched() -> None:
    index = ToolSearch([HostTool(find_customer), HostTool(cancel_orders)])
    for query, expected in {
        "customers": ["find_customer"],
        "VAT number": ["find_customer", "cancel_orders"],
        "canceling": ["cancel_orders"],
        "BUYS": ["find_customer"],
        "the weather": [],
        "": [],
    }.items():
        assert names(index, query) == expected, query
    assert names(index, "number", limit=1) == ["cancel_orders"]
    assert ToolSearch([]).search("anything") == []
