"""Agents as configurations: nothing is lost on the way through JSON, and nothing foreign gets in."""

import inspect
import json
from typing import Any

import pytest
from autogen_agentchat.base import ChatAgent, Handoff
from autogen_agentchat.messages import CodeExecutionEvent
from autogen_core.model_context import BufferedChatCompletionContext
from autogen_core.tools import FunctionTool
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel, ValidationError

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.budget import Budget, Prices
from autogen_codeact.executors import AllowTools, BubblewrapCommandLineCodeExecutor, ToolApproval
from autogen_codeact.teams import load_component
from tests.agents.codeact import python
from tests.agents.support import decision

pytestmark = pytest.mark.usefixtures("bubblewrap")


class Sum(BaseModel):
    total: int


COMMON: dict[str, Any] = {
    "model_client_stream": True,
    "stream_output": True,
    "description": "Counts.",
    "system_message": "Be brief.",
    "supported_languages": ["python"],
    "describe_environment": False,
    "context_budget": 50_000,
}
BUDGET = Budget(max_steps=3, max_tokens=1000, max_seconds=2.5, max_cost=0.5, prices=Prices(prompt=1, completion=2))
ARGUMENTS: dict[Any, dict[str, Any]] = {
    CodeExecutorAgent: {**COMMON, "max_retries_on_error": 4, "sources": ["coder"]},
    CodeActAgent: {
        **COMMON,
        "prompt_style": "execute",
        "handoffs": [Handoff(target="Bob", message="Your turn."), "carol"],
        "output_content_type": Sum,
        "setup": "import math",
        "budget": BUDGET,
    },
}
PARTS = {"name", "code_executor", "model_client", "model_context", "tools", "approve_tool", "approval_func"}
EACH = [(kind, name) for kind, arguments in ARGUMENTS.items() for name in arguments]
BOTH = pytest.mark.parametrize("kind", ARGUMENTS)


def made(kind: Any, **arguments: Any) -> Any:
    executor = BubblewrapCommandLineCodeExecutor(mode="session", timeout=7)
    return kind("actor", executor, **{"model_client": ReplayChatCompletionClient(["Hello."]), **arguments})


def dumped(agent: Any) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(agent.dump_component().model_dump_json(exclude_none=True))
    return config


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers."""
    return a * b


async def yes(request: Any) -> ToolApproval:
    return ToolApproval(True)


@BOTH
def test_all_arguments_are_known_here(kind: Any) -> None:
    arguments = inspect.signature(kind).parameters
    assert {*arguments} == {*PARTS, *ARGUMENTS[kind]}
    assert len(arguments) <= 20


@pytest.mark.parametrize(("kind", "name"), EACH)
def test_each_argument_survives_json(kind: Any, name: str) -> None:
    value = ARGUMENTS[kind][name]
    config = dumped(made(kind, **{name: value}))
    twin = ChatAgent.load_component(config)  # type: ignore[attr-defined]
    assert type(twin) is kind
    assert dumped(twin) == config != dumped(made(kind))
    if name not in ("handoffs", "output_content_type", "budget"):
        assert config["config"][name] == value


@BOTH
def test_parts_survive_json(kind: Any) -> None:
    given = dumped(made(kind, model_context=BufferedChatCompletionContext(buffer_size=3)))
    config = dumped(kind.load_component(given))["config"]
    assert config["model_context"]["config"] == {"buffer_size": 3}
    assert config["model_client"]["config"]["chat_completions"] == ["Hello."]
    assert config["code_executor"]["config"]["timeout"] == 7


@BOTH
@pytest.mark.parametrize("words", [None, ""])
def test_no_system_message_is_not_the_default_one(kind: Any, words: str | None) -> None:
    config = dumped(made(kind, system_message=words))
    assert kind.load_component(config).dump_component().config["system_message"] == words


@BOTH
def test_provider_is_public_and_unknown_keys_are_refused(kind: Any) -> None:
    config = made(kind).dump_component()
    assert config.provider == f"autogen_codeact.agents.{kind.__name__}"
    config.config["max_stepps"] = 3
    with pytest.raises(ValidationError, match="max_stepps"):
        kind.load_component(config)


def test_handoffs_are_loaded_from_untrusted_text() -> None:
    config = dumped(made(CodeActAgent, handoffs=["bob"]))
    assert config["config"]["handoffs"] == [Handoff(target="bob", message="").model_dump()]
    assert dumped(load_component(json.dumps(config))) == config


# Tools and policies


@BOTH
async def test_tools_and_policy_work_after_a_round_trip(kind: Any) -> None:
    tools = [FunctionTool(add, "Adds."), FunctionTool(multiply, "Multiplies.")]
    client = ReplayChatCompletionClient([python("print(add(5, 3))\nmultiply(8, 2)"), decision(False), "8."])
    given = dumped(made(kind, model_client=client, tools=tools, approve_tool=AllowTools(["add"])))
    with pytest.warns(UserWarning, match="SECURITY WARNING"):  # of AutoGen: a FunctionTool is loaded from source
        twin = kind.load_component(given)
    assert dumped(twin) == given
    result = await twin.run(task="Go.")
    await twin.close()
    (ran,) = [message.result for message in result.messages if isinstance(message, CodeExecutionEvent)]
    assert ran.output.startswith("8\n")
    assert [(call.name, call.outcome) for call in ran.tool_calls] == [("add", "ok"), ("multiply", "refused")]
    assert str(ran.error.message) == "the tool multiply is not on the list of allowed tools"


@BOTH
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tools": [add, FunctionTool(add, "Adds.", name="plus")]}, "These tools can't be written .*: `add`"),
        ({"approve_tool": yes}, "approve_tool=`yes` can't be written into a config: use a policy"),
        ({"approval_func": lambda _: None}, r"^Cannot serialize .* with approval_func set"),
    ],
)
def test_what_a_config_can_not_hold_is_named(kind: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(kind, **options).dump_component()


def test_agent_and_executor_may_have_one_tool_and_not_two_policies() -> None:
    tool, policy = FunctionTool(add, "Adds."), AllowTools(["add"])
    executor = BubblewrapCommandLineCodeExecutor(mode="session", tools=[tool], approve_tool=policy)
    agent = CodeActAgent("actor", executor, model_client=ReplayChatCompletionClient([]), tools=[tool])
    with pytest.warns(UserWarning, match="SECURITY WARNING"):
        twin = CodeActAgent.load_component(agent.dump_component())
    assert twin.dump_component() == agent.dump_component()
    with pytest.raises(ValueError, match="give it to the executor or to one of its agents"):
        CodeActAgent("other", executor, model_client=ReplayChatCompletionClient([]), approve_tool=yes)
