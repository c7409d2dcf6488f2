"""A conversation in one log, without a sandbox."""

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_core.models import UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.runs import load_run
from autogen_codeact.runs.conversation import RecordedConversation
from autogen_codeact.runs.events import RunFinished


async def say(conversation: RecordedConversation, text: str) -> str:
    """Have a message answered, and return the answer."""
    *_, last = [item async for item in conversation.turn(text)]
    assert isinstance(last, TaskResult)
    return last.messages[-1].to_text()


async def test_turns_of_one_log_end_with_the_whole_duration_and_a_reset_forgets_them(tmp_path):
    client = ReplayChatCompletionClient(["one", "two", "three"])
    conversation = RecordedConversation(AssistantAgent("helper", client), tmp_path / "chat")
    assert await say(conversation, "first") == "one"
    assert await say(conversation, "second") == "two"
    await conversation.reset()
    assert await say(conversation, "third") == "three"
    await conversation.close()

    sent = [
        [each.content for each in call["messages"] if isinstance(each, UserMessage)] for call in client.create_calls
    ]
    assert sent == [["first"], ["first", "second"], ["third"]]
    events = list(load_run(tmp_path / "chat"))
    turn = ["turn_started", "message", "model_call_started", "model_call_finished", "message", "turn_finished"]
    assert [event.type for event in events] == [
        "run_started",
        "boundary",
        *[*turn, "boundary"] * 2,
        "conversation_reset",
        "boundary",
        *[*turn, "boundary"],
        "run_finished",
    ]
    finished = events[-1]
    assert isinstance(finished, RunFinished)
    assert finished.outcome == "completed"
    assert finished.duration_s > 0
