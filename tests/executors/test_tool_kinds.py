"""AutoGen's tools and workbenches as host tools, and what a config keeps of them."""

import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.tools import AgentTool
from autogen_core import CancellationToken
from autogen_core.tools import (
    BaseTool,
    FunctionTool,
    StaticWorkbench,
    ToolSchema,
)
from autogen_ext.models.replay import ReplayChatCompletionClient
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams
from pydantic import BaseModel, Field

from autogen_codeact.executors.tools.configs import load_tools
from autogen_codeact.executors.tools.host_tools import HostTools
from codeact_sandbox.types.tool import HostToolProtocol, ToolArgumentError
from tests.executors.schema_workbench import SchemaWorkbench
from tests.sandbox.tools.stub_host import StubHost

SERVER = Path(__file__).with_name("mcp_server.py")


class Place(BaseModel):
    """Where something is."""

    city: str
    country: str = "CH"


class Question(BaseModel):
    place: Place
    days: int = Field(default=1, ge=1, description="How many days.")
    units: str | None = None


class Weather(BaseModel):
    place: Place
    degrees: list[float]


class WeatherTool(BaseTool[Question, Weather]):
    def __init__(self) -> None:
        super().__init__(Question, Weather, "weather", "Forecast the weather.")

    async def run(self, args: Question, cancellation_token: CancellationToken) -> Weather:
        return Weather(place=args.place, degrees=[20.5] * args.days)


def double(number: int, times: int = 2) -> int:
    """Multiply."""
    return number * times


LOOK_UP = ToolSchema(
    name="look-up",
    description="Look something up.",
    parameters={
        "type": "object",
        "properties": {
            "most": {"type": "integer", "minimum": 1, "default": 10},
            "key-word": {"type": "string", "description": "What to look for."},
            "filter": {"type": "object", "properties": {"max-size": {"type": "integer"}, "from": {"type": "string"}}},
            "kinds": {"type": "array", "items": {"enum": ["a", "b"]}},
        },
        "required": ["key-word"],
        "additionalProperties": False,
    },
)


def mcp() -> McpWorkbench:
    return McpWorkbench(StdioServerParams(command=sys.executable, args=[str(SERVER)], read_timeout_seconds=60))


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def server_tools() -> AsyncIterator[Sequence[HostToolProtocol]]:
    """The tools of one server."""
    tools = HostTools([mcp()])
    yield await tools.start()
    await tools.stop()


@pytest_asyncio.fixture(loop_scope="class")
async def shop(server_tools: Sequence[HostToolProtocol]) -> StubHost:
    return StubHost(server_tools)


class TestBaseTools:
    async def test_base_tools_are_called_with_dicts_and_return_dicts(self):
        (tool,) = await HostTools([WeatherTool()]).start()
        assert tool.signature == "(place: Place, days: int = 1, units: str | None = None) -> Weather"
        assert tool.description == (
            "Forecast the weather.\n\nArgs:\n    days: How many days.\n\n"
            "Place, a dict: Where something is.\n    city: str\n    country: str = 'CH'\n\n"
            "Weather, a dict:\n    place: Place\n    degrees: list[float]"
        )
        box = StubHost([tool])
        assert await box.run("weather({'city': 'Bern'}, days=2)['degrees']") == [20.5, 20.5]
        assert await box.run("weather({'city': 'Rome', 'country': 'IT'})['place']['country']") == "IT"
        assert box.calls == [
            ("weather", {"place": {"city": "Bern"}, "days": 2}),
            ("weather", {"place": {"city": "Rome", "country": "IT"}}),
        ]

    async def test_base_tools_check_their_arguments(self):
        (tool,) = await HostTools([WeatherTool()]).start()
        with pytest.raises(ToolArgumentError) as caught:
            await tool.run({"place": {"city": "Bern"}, "days": 0})
        assert str(caught.value) == "days: Input should be greater than or equal to 1, not 0"
        with pytest.raises(ToolArgumentError, match=r"^speed is not known$"):
            await tool.run({"place": {"city": "Bern"}, "speed": 0})

    async def test_agent_tool_returns_the_text_of_its_agent(self):
        model = ReplayChatCompletionClient(["Bern it is."])
        agent = AssistantAgent("capital", model, description="Knows capitals.")
        tools = await HostTools([AgentTool(agent, return_value_as_last_message=True)]).start()
        assert tools[0].signature == "(task: str) -> str"
        assert await StubHost(tools).run("capital('Switzerland?')") == "Bern it is."


class TestWorkbenches:
    async def test_other_workbench_is_known_by_its_schemas(self):
        workbench = SchemaWorkbench([LOOK_UP])
        tools = HostTools([workbench])
        assert tools.known is None
        (tool,) = await tools.start()
        assert tool.name == "look_up"
        assert tool.signature == (
            "(key_word: str, most: int = 10, filter: Filter = None, kinds: list[Literal['a', 'b']] = None) -> str"
        )
        assert tool.description == (
            "Look something up.\n\nArgs:\n    key_word: What to look for.\n\n"
            "Filter, a dict:\n    max-size: int (optional)\n    from: str (optional)"
        )
        box = StubHost([tool])
        assert await box.run("look_up('x', filter={'max-size': 3}, kinds=['a'])") == "found"
        with pytest.raises(ToolArgumentError) as caught:
            await tool.run({"most": 0, "kinds": ["c"], "filter": 3, "more": 1})
        assert str(caught.value) == (
            "most: 0 is less than the minimum of 1; filter: 3 is not of type 'object'; kinds[0]: 'c' is not one of ['a', 'b']; "
            "'key-word' is a required property; "
            "Additional properties are not allowed ('more' was unexpected)"
        )
        await tools.stop()
        assert workbench.events == [
            "start",
            "look-up {'key-word': 'x', 'filter': {'max-size': 3}, 'kinds': ['a']}",
            "stop",
        ]


@pytest.mark.asyncio(loop_scope="class")
class TestMcpServer:
    async def test_mcp_tools_have_types_and_their_names_are_made_identifiers(self, shop: StubHost):
        assert {name: tool.signature for name, tool in shop.tools.items()} == {
            "add": "(a: int, b: int = 2) -> int",
            "place_order": "(lines: list[Line], paid_by: Literal['card', 'cash'] = 'card', note: str | None = None) -> Receipt",
            "shop_stock_take": "(sku: str) -> str",
            "fail": "(why: str) -> str",
            "image": "() -> str",
            "print_": "(text: str) -> str",
        }
        assert "\n\nLine, a dict: One line of an order.\n    sku: str  # What is bought\n    amount: int = 1\n\n" in (
            shop.tools["place_order"].description
        )

    async def test_errors_and_images_of_mcp_tools_arrive(self, shop: StubHost):
        with pytest.raises(RuntimeError, match=r"^Error executing tool fail: out of paper$"):
            await shop.run("fail('out of paper')")
        with pytest.raises(ToolArgumentError, match=r"^a: 'x' is not of type 'integer'$"):
            await shop.run("add('x')")
        assert await shop.run("image()") == "see\n[image 1: 1×1 pixels]"
        assert [[each.size for each in answer.images] for answer in shop.answers] == [[(1, 1)]]


class TestConfig:
    async def test_config_keeps_tools_and_workbenches_that_are_components(self):
        tools = HostTools(
            [FunctionTool(double, "Multiply."), StaticWorkbench([FunctionTool(double, "", name="d")]), mcp()]
        )
        dumped = tools.dump()["tools"]
        assert [model.provider for model in dumped] == [
            "autogen_core.tools.FunctionTool",
            "autogen_core.tools.StaticWorkbench",
            "autogen_ext.tools.mcp.McpWorkbench",
        ]
        with pytest.warns(UserWarning, match="SECURITY WARNING"):
            loaded = HostTools(load_tools(dumped))
        assert loaded.dump()["tools"] == dumped

    def test_config_names_all_that_are_not(self):
        with pytest.raises(ValueError, match="can't be written") as caught:
            HostTools([double, FunctionTool(double, "", name="e"), WeatherTool(), SchemaWorkbench([LOOK_UP])]).dump()
        assert str(caught.value) == (
            "These tools can't be written into a config: `double`, `weather`, `SchemaWorkbench`. A config holds AutoGen's tool "
            "and workbench components; wrap a function with FunctionTool(function, description=...), or pass the tools where the "
            "config is loaded."
        )

    def test_config_refuses_components_that_are_no_tools(self):
        model = ReplayChatCompletionClient(["x"]).dump_component()
        with pytest.raises(
            TypeError, match=r"^tools names .*ReplayChatCompletionClient, a replay.*; it must be a tool"
        ):
            load_tools([model])
