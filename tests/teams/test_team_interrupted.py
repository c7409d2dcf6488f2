"""A run that fails or is cancelled ends at once, raises the right thing, leaves nothing behind, and can be repeated."""

import asyncio
import threading
import traceback
from contextlib import aclosing

import pytest
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import BaseAgentEvent, TextMessage
from autogen_core import CancellationToken

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.teams import FinalWordTermination, Team

from .support import (
    PRINT_42,
    CountingAgent,
    NoQuotaLeft,
    ScriptedAgent,
    ScriptedModel,
    SleepingAgent,
    begun,
    cancelled,
    coder,
    cut_short,
    ended,
    listen,
    others,
    texts_of,
)

pytestmark = pytest.mark.usefixtures("tidy")

SYSTEM = ("system", "Write code.")


def pair(model, executor, **kwargs):
    participants = [coder(model), CodeExecutorAgent("executor", executor, sources=["coder"])]
    return Team(participants, termination_condition=FinalWordTermination(sources=["coder"]), **kwargs)


# A participant raises


async def test_a_coder_that_raises_raises_out_of_the_run_and_a_second_run_is_complete(executor):
    error = NoQuotaLeft("none left", 429)
    model = ScriptedModel([error, PRINT_42, "It is 42. TERMINATE"])
    team = pair(model, executor)

    async with asyncio.timeout(20):
        with pytest.raises(NoQuotaLeft) as caught:
            await team.run(task="six times seven")
    assert others() == set()
    assert caught.value is error
    assert caught.value.args == ("none left", 429)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "item = self.script.pop(0)" not in "".join(traceback.format_exception(error))
    assert "raise item" in "".join(traceback.format_exception(error))

    second = await team.run(task="please")
    assert others() == set()
    assert texts_of(second) == [
        ("user", "please"),
        ("coder", PRINT_42),
        ("executor", "42\n"),
        ("coder", "It is 42. TERMINATE"),
    ]
    assert second.stop_reason == "coder said TERMINATE"
    before = [SYSTEM, ("user", "six times seven"), ("user", "please")]
    assert model.told == [before, [*before, ("assistant", PRINT_42), ("executor", "42\n")]]


async def test_a_failure_in_the_second_round_undoes_that_turn_only(executor):
    error = NoQuotaLeft("none left")
    model = ScriptedModel([PRINT_42, error, "It is 42. TERMINATE"])
    team = pair(model, executor)
    heard = []
    with pytest.raises(NoQuotaLeft):
        await listen(team.run_stream(task="six times seven"), heard)
    assert heard == [("user", "six times seven"), ("coder", PRINT_42), ("executor", "42\n")]

    second = await team.run()

    assert texts_of(second) == [("coder", "It is 42. TERMINATE")]
    assert model.told[-1] == [SYSTEM, ("user", "six times seven"), ("assistant", PRINT_42), ("executor", "42\n")]


@pytest.mark.parametrize(
    "error",
    [asyncio.CancelledError("mine"), TimeoutError("slow"), StopAsyncIteration(), pytest.fail.Exception("a test's")],
)
async def test_special_exceptions_of_a_participant_come_out_too(error):
    team = Team([ScriptedAgent([error])], max_turns=1)
    async with asyncio.timeout(20):
        with pytest.raises(BaseException) as caught:  # noqa: PT011 (identity is asserted)
            await team.run(task="go")
    if isinstance(error, StopAsyncIteration):  # Python itself turns it into this inside a generator
        assert caught.value.__cause__ is error
    else:
        assert caught.value is error
    assert texts_of(await team.run()) == [("scripted", "heard 1")]


async def test_a_message_type_that_the_team_does_not_know_is_a_clear_error():
    class Note(BaseAgentEvent):
        content: str

        def to_text(self) -> str:
            return self.content

    team = Team([ScriptedAgent([Note(content="hi", source="scripted")])], max_turns=1)
    with pytest.raises(ValueError, match=r"'scripted' produced a Note, .* custom_message_types"):
        await team.run(task="go")
    assert texts_of(await team.run()) == [("scripted", "heard 1")]

    told = Team([ScriptedAgent([Note(content="hi", source="scripted")])], max_turns=1, custom_message_types=[Note])
    assert texts_of(await told.run(task="go")) == [("user", "go"), ("scripted", "hi"), ("scripted", "heard 1")]


async def test_a_participant_without_an_answer_is_a_clear_error():
    class Mute(CountingAgent):
        async def on_messages_stream(self, messages, cancellation_token):
            for _ in ():
                yield _

    with pytest.raises(RuntimeError, match="'counting' ended its turn without a Response"):
        await Team([Mute()]).run(task="go")


# The caller goes away


async def test_cancelling_the_task_ends_a_participant_that_ignores_its_token():
    sleeping, counting = SleepingAgent(), CountingAgent()
    team = Team([sleeping, counting], max_turns=2)
    await cut_short(team, sleeping)

    assert others() == set()
    assert not sleeping.finished
    assert texts_of(await team.run(task="two")) == [("user", "two"), ("sleeping", "heard 2"), ("counting", "heard 3")]
    assert sleeping.heard == [["one", "two"]]
    assert counting.heard == [["one", "two", "heard 2"]]


@pytest.mark.parametrize("from_thread", [False, True])
async def test_cancelling_the_token_ends_the_run(from_thread):
    sleeping, token = SleepingAgent(), CancellationToken()
    team = Team([sleeping], max_turns=1)
    run = asyncio.create_task(team.run(task="one", cancellation_token=token))
    await sleeping.begun.wait()
    if from_thread:
        thread = threading.Timer(0.05, token.cancel)  # by then the loop sleeps, and has to be woken
        thread.start()
    else:
        token.cancel()
    assert isinstance(await ended(run), asyncio.CancelledError)
    if from_thread:
        thread.join()
    assert others() == set()
    with pytest.raises(asyncio.CancelledError, match="Use a new one"):
        await team.run(task="two", cancellation_token=token)
    assert texts_of(await team.run(task="three")) == [("user", "three"), ("sleeping", "heard 2")]


@pytest.mark.parametrize("way", ["aclose", "break"])
async def test_leaving_the_stream_ends_the_run(way):
    sleeping = SleepingAgent()
    team = Team([sleeping], max_turns=1)
    async with asyncio.timeout(20):
        if way == "aclose":
            async with aclosing(team.run_stream(task="one")) as stream:
                async for _ in stream:
                    await sleeping.begun.wait()
                    break
            assert others() == set()
        else:
            async for _ in team.run_stream(task="one"):
                await sleeping.begun.wait()
                break
        assert texts_of(await team.run(task="two")) == [("user", "two"), ("sleeping", "heard 2")]


@pytest.mark.parametrize("steps", range(0, 90, 2))
async def test_no_message_is_lost_or_repeated_whenever_the_run_is_cancelled(steps):
    first, second = CountingAgent("first"), CountingAgent("second")
    team = Team([first, second], termination_condition=MaxMessageTermination(3), max_turns=3)
    run = asyncio.create_task(team.run(task="one"))
    for _ in range(steps):
        await asyncio.sleep(0)
    await cancelled(run)
    assert others() == set()
    before = len(first.heard) + len(second.heard)

    result = await team.run(task="two")

    assert result.stop_reason is not None
    assert result.stop_reason.startswith("Maximum number of messages 3 reached")
    assert len(texts_of(result)) == 3
    assert len(first.heard) + len(second.heard) == before + 2
    for counting in (first, second):
        heard = [words for turn in counting.heard for words in turn]
        assert heard.count("two") == 1
        assert heard.count("one") == (1 if steps else 0)


# Ready-made team, and a run beside a run


async def test_a_run_beside_a_run_is_refused_and_disturbs_nothing():
    sleeping = SleepingAgent()
    team = Team([sleeping, CountingAgent()], max_turns=2)
    run = await begun(team, sleeping)
    with pytest.raises(ValueError, match="already running"):
        await team.run(task="two")
    with pytest.raises(RuntimeError, match="is running"):
        await team.reset()
    with pytest.raises(RuntimeError, match="is running"):
        await team.load_state({})
    assert not run.done()
    await cancelled(run)


@pytest.mark.parametrize("task", [[], ["text"], 5])
async def test_a_task_of_a_wrong_kind_is_an_error_and_the_team_stays_usable(task):
    team = Team([CountingAgent()], max_turns=1)
    with pytest.raises(ValueError, match=r"[Tt]ask"):
        await team.run(task=task)
    assert others() == set()
    messages = (TextMessage(content="one", source="user"), TextMessage(content="two", source="user"))
    assert texts_of(await team.run(task=messages))[-1] == ("counting", "heard 2")


async def test_state_saved_in_mid_turn_is_that_before_the_turn():
    class Early(SleepingAgent):
        async def sleep(self):
            self.heard.append(["half a turn"])
            await super().sleep()

    early = Early()
    team = Team([early], max_turns=1)
    run = await begun(team, early, "go")
    saved = (await team.save_state())["agent_states"]["sleeping"]
    await cancelled(run)
    assert (saved["agent_state"], len(saved["message_buffer"])) == ({"heard": []}, 1)
