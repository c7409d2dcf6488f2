"""Saved states that can't be right: a clear error that names the field, in bounded time, and nothing has changed."""

import base64
import json
from io import BytesIO
from typing import Any

import pytest
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from autogen_core.models import UserMessage
from PIL import Image as PILImage

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.journal import MAX_BLOCKS, MAX_BYTES, Journal, SessionRecord
from autogen_codeact.agents.observation import call_lines
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, ExecutionResult
from autogen_codeact.teams import Team
from codeact_sandbox.types.result import ToolCall
from tests.abuse.lag import LoopLag
from tests.agents.support import scripted

pytestmark = pytest.mark.slow

ENTRY: dict[str, Any] = {"language": "python", "code": "x = 1", "outcome": "ok", "output": "0" * 32}
CALL: dict[str, Any] = {"name": "pay", "arguments": {}, "outcome": "ok"}


def nested(depth: int) -> Any:
    inner: Any = 1
    for _ in range(depth):
        inner = [inner]
    return inner


def entry(**more: Any) -> dict[str, Any]:
    return {"journal": {"entries": [{**ENTRY, **more}]}}


def result_of(numbers: int) -> dict[str, Any]:
    return entry(calls=[{**CALL, "result": [0] * numbers}])


WRONG: dict[str, tuple[Any, str]] = {
    "no mapping": ([1], "the state: |agent_state: "),
    "another type": ({"type": "TeamState"}, "This is a TeamState, not the state of a "),
    "a long type": ({"type": "x" * 10**6}, "type: String should have at most 200 characters"),
    "a journal that is none": ({"journal": 7}, "journal: "),
    "an entry that is none": ({"journal": {"entries": [7]}}, "journal.entries.0: "),
    "a million entries": ({"journal": {"entries": [ENTRY] * 10**6}}, "journal.entries: .*1,000,000 entries"),
    "too long a code": (entry(code="x" * (MAX_BYTES + 1)), "journal.entries: .*4,194,304 bytes"),
    "too large a result": (result_of(5 * 10**6), "journal.entries: .*4,194,304 bytes"),
    "too deep a result": (entry(calls=[{**CALL, "result": nested(10_000)}]), "entries: .*nested more than 200"),
    "a negative count": ({"journal": {"left_out": -5}}, "journal.left_out: .*greater than or equal to 0"),
    "NaN": ({"journal": {"left_out": float("nan")}}, "journal.left_out: "),
    "another outcome": (entry(outcome="denied"), "journal.entries.0.outcome: "),
    "a field too many": (entry(approve=True), "journal.entries.0.approve: "),
    "a name outside": (entry(files={"../x": "1:"}), "entries.0.files: .*can't be a file in the workspace"),
    "a mark that is none": (entry(files={"x": "-1:"}), "journal.entries.0.files.x: "),
    "too many files": (entry(files={f"f{n}": "1:" for n in range(2_001)}), "0.files: .*at most 2000"),
    "too many files in all": (
        {"journal": {"entries": [{**ENTRY, "files": {f"{k}/f{n}": "1:" for n in range(600)}} for k in range(2)]}},
        "journal: .*entries.1.files: there are more than 1,000 files",
    ),
    "too many interruptions": ({"interrupted": ["- pay()"] * 1_001}, "interrupted: .*1000 items"),
    "messages that are none": ({"llm_context": {"messages": [{"type": "Nobody"}]}}, "llm_context: "),
}


def actor() -> CodeActAgent:
    return CodeActAgent("actor", BubblewrapCommandLineCodeExecutor(mode="session"), model_client=scripted())


def coder() -> CodeExecutorAgent:
    return CodeExecutorAgent("coder", BubblewrapCommandLineCodeExecutor(mode="session"), model_client=scripted())


def with_type(agent: Any, state: Any) -> Any:
    return {"type": f"{type(agent).__name__}State", **state} if isinstance(state, dict) else state


@pytest.mark.parametrize("make", [actor, coder])
@pytest.mark.parametrize("name", WRONG)
async def test_an_agent_or_its_team_refuses_an_invalid_state_completely(make: Any, name: str) -> None:
    state, message = WRONG[name]
    agent = make()
    team = Team([agent], termination_condition=MaxMessageTermination(3))
    whole = json.loads(json.dumps(await team.save_state()))
    whole["agent_states"][agent.name]["agent_state"] = with_type(agent, state)
    await agent.model_context.add_message(UserMessage(content="Remember.", source="user"))
    before = await team.save_state()
    for loading in (agent.load_state(with_type(agent, state)), team.load_state(whole)):
        with pytest.raises(ValueError, match=message) as caught:
            await loading
        assert len(str(caught.value)) < 1_500
        assert await team.save_state() == before


async def test_loading_a_hostile_state_does_not_block_the_event_loop() -> None:
    agent = actor()
    async with LoopLag() as lag:
        hostile = [WRONG[name][0] for name in ("a million entries", "too deep a result", "too long a code")]
        for state in (*hostile, result_of(10**7)):
            with pytest.raises(ValueError, match="journal"):
                await agent.load_state(with_type(agent, state))
    assert lag.excess_s < 1.0  # it would be seconds


async def test_a_saved_state_can_be_loaded_again() -> None:
    """Also at the bounds: as many calls and blocks as there can be, as long as they can be."""
    record, executor = SessionRecord(), BubblewrapCommandLineCodeExecutor(mode="session")
    call = ToolCall("pay", {"x" * 5_000: "y" * 50_000}, "ok", "z" * 50_000)
    for number in range(MAX_BLOCKS + 2):
        block = CodeBlock(code="x" * 4_000, language="python")
        files = {f"{name}{'n' * 100}": f"{number}:{'a' * 32}" for name in range(10)}
        result = ExecutionResult(0, "", None, number=number + 1, tool_calls=(call,) * (number == 0), files_before=files)
        record.add_block(executor, block, result)
    assert record.journal.left_out > 0
    saved = json.loads(json.dumps({"journal": record.journal.model_dump()}))
    assert Journal.model_validate(saved["journal"]) == record.journal
    agent = actor()
    agent._runner.load(None, call_lines([call] * 1_500) * 50)
    state = await agent.save_state()
    await agent.load_state(json.loads(json.dumps(state)))
    assert len((await agent.save_state())["interrupted"]) == 1_000
    await agent.on_reset(CancellationToken())


def image(width: int, height: int, kind: str = "PNG") -> dict[str, str]:
    file = BytesIO()
    PILImage.new("1", (width, height)).save(file, kind)
    return {"data": base64.b64encode(file.getvalue()).decode()}


@pytest.mark.parametrize("more", [{}, {"detail": "low"}], ids=["as AutoGen saves it", "with another key"])
async def test_no_image_of_a_saved_state_is_decoded(more: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ["Look.", {**image(9_000, 9_000), **more}, {**image(10, 10), **more}]
    monkeypatch.setattr(PILImage.Image, "convert", lambda *_: pytest.fail("decoded"))
    agent = CodeActAgent("actor", BubblewrapCommandLineCodeExecutor(mode="session"), model_client=scripted("Done."))
    messages = [{"type": "UserMessage", "source": "user", "content": parts}]
    await agent.load_state({"type": "CodeActAgentState", "llm_context": {"messages": messages}})
    loaded = (await agent.save_state())["llm_context"]["messages"][0]["content"]
    assert [part if isinstance(part, str) else part.keys() for part in loaded] == ["Look.", {"data"}, {"data"}]

    team = Team([agent], name="team")
    state = json.loads(json.dumps(await team.save_state()))
    manager = next(each for each in state["agent_states"].values() if "message_thread" in each)
    message = {"type": "MultiModalMessage", "id": "1", "created_at": "2026-01-01T00:00:00Z", "source": "user"}
    manager["message_thread"] = [{**message, "metadata": {"data": "plain"}, "content": parts}]
    await team.load_state(state)
    kept = next(each for each in (await team.save_state())["agent_states"].values() if "message_thread" in each)
    assert kept["message_thread"][0]["metadata"] == {"data": "plain"}


@pytest.mark.parametrize("part", [image(10, 10, "BMP"), {"data": "no image"}, {"data": "="}])
async def test_a_state_with_a_wrong_image_changes_nothing(part: dict[str, str]) -> None:
    agent = actor()
    before = await agent.save_state()
    messages = [{"type": "UserMessage", "source": "user", "content": [part]}]
    reason = "llm_context: ValueError: an image in it is not a PNG or JPEG file"
    with pytest.raises(ValueError, match=f"The state can't be loaded: {reason}"):
        await agent.load_state({"type": "CodeActAgentState", "llm_context": {"messages": messages}})
    assert await agent.save_state() == before
