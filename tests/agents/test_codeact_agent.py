"""One turn of the agent that acts in code: which events there are, and exactly what the model was told."""

from typing import Any

import pytest
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import (
    CodeExecutionEvent,
    CodeGenerationEvent,
    ModelClientStreamingChunkEvent,
    StructuredMessage,
    TextMessage,
    ThoughtEvent,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.ui import Console
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import SystemMessage, UserMessage
from pydantic import BaseModel

from autogen_codeact.agents import Budget, CodeActAgent
from autogen_codeact.agents import codeact_prompt as prompt
from autogen_codeact.agents.code_search import ANSWER_NOT_RUN, CUT_OFF
from autogen_codeact.agents.codeact_prompt import ANSWER_BY_CALL, ANSWER_IN_WORDS
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, Limits
from autogen_codeact.executors.executor import SandboxCodeExecutor
from autogen_codeact.teams import Team
from codeact_sandbox.types.result import ErrorInfo
from tests.agents.codeact import (
    answer_message,
    comparable,
    execution_event,
    from_agent,
    generation_event,
    model,
    python,
    user,
)
from tests.agents.support import model_answer, plain, received_by, scripted, token_usage

TASK = TextMessage(content="What is 6 * 7?", source="user")
TOLD_TASK = user("What is 6 * 7?")


def system(agent: CodeActAgent) -> SystemMessage:
    assert agent._conversation is not None
    words = agent._conversation.system_message
    assert words is not None
    return SystemMessage(content=words)


class Sum(BaseModel):
    """An answer."""

    total: int
    note: str = ""


async def test_agent_runs_steps_until_it_answers_without_code(session: SandboxCodeExecutor) -> None:
    first, second = python("x = 6\nprint(x)"), python("x * 7")
    client = scripted(model_answer(first, cost=2), model_answer(second, cost=3), model_answer("It is 42.", cost=4))
    agent = CodeActAgent("actor", session, model_client=client)

    result = await agent.run(task=[TASK])

    assert comparable(result.messages) == [
        plain(TASK),
        generation_event(1, first, "x = 6\nprint(x)\n", cost=2),
        execution_event(1, "6\n"),
        generation_event(2, second, "x * 7\n", cost=3),
        execution_event(2, "42\n", value_repr="42"),
        answer_message("It is 42.", cost=4, steps="3"),
    ]
    start = [system(agent), TOLD_TASK]
    assert received_by(client) == [
        start,
        [*start, model(first), from_agent("6\n")],
        [*start, model(first), from_agent("6\n"), model(second), from_agent("42\n")],
    ]


async def test_run_returns_what_run_stream_yields(session: SandboxCodeExecutor) -> None:
    script = [model_answer(python("print(42)"), thought="easy"), "It is 42."]
    plain = await CodeActAgent("actor", session, model_client=scripted(*script)).run(task=[TASK])
    agent = CodeActAgent("actor", session, model_client=scripted(*script), model_client_stream=True, stream_output=True)
    items = [item async for item in agent.run_stream(task=[TASK])]

    assert isinstance(items[-1], TaskResult)
    assert any(isinstance(item, ModelClientStreamingChunkEvent) for item in items)
    kept = [item for item in items[:-1] if not isinstance(item, ModelClientStreamingChunkEvent)]
    assert items[-1].messages == kept
    assert [type(item) for item in kept[:2]] == [TextMessage, ThoughtEvent]
    # AutoGen's replay client counts nothing while it streams.
    costs_nothing = {"models_usage": None}
    assert [one | costs_nothing for one in comparable(kept)] == [
        one | costs_nothing for one in comparable(plain.messages)
    ]


async def test_error_is_reported_and_earlier_effects_stay(session: SandboxCodeExecutor) -> None:
    fails, repairs = python("x = 6\ny = z"), python("print(x * 7)")
    client = scripted(fails, repairs, "It is 42.")
    agent = CodeActAgent("actor", session, model_client=client)

    result = await agent.run(task=[TASK])

    failure = result.messages[2]
    assert isinstance(failure, CodeExecutionEvent)
    traceback = failure.result.output
    assert traceback.endswith("NameError: name 'z' is not defined\n")
    assert comparable(result.messages[1:]) == [
        generation_event(1, fails, "x = 6\ny = z\n"),
        execution_event(
            1, traceback, exit_code=1, outcome="error", error=ErrorInfo("NameError", "name 'z' is not defined", 2)
        ),
        generation_event(2, repairs, "print(x * 7)\n"),
        execution_event(2, "42\n"),
        answer_message("It is 42.", steps="3"),
    ]
    kept = "The session's memory was kept: what this code defined before it ended is there."
    assert received_by(client)[1][-1] == from_agent(
        f"The script ran, then exited with an error (POSIX exit code: 1)\nIts output was:\n{traceback}\n{kept}"
    )


async def test_a_cut_off_or_empty_message_is_no_answer(session: SandboxCodeExecutor) -> None:
    client = scripted("```python\nprint(1)", "  ", "It is 42.")
    agent = CodeActAgent("actor", session, model_client=client)

    result = await agent.run(task=[TASK])

    assert comparable(result.messages[1:]) == [
        generation_event(1, "```python\nprint(1)", cut_off="true"),
        generation_event(2, "  ", sent_back=prompt.EMPTY),
        answer_message("It is 42.", steps="3"),
    ]
    assert received_by(client)[2] == [
        system(agent),
        TOLD_TASK,
        model("```python\nprint(1)"),
        from_agent(CUT_OFF),
        from_agent(prompt.EMPTY),
    ]


async def test_only_tags_are_run_with_the_prompt_style_of_tags(session: SandboxCodeExecutor) -> None:
    acts = "First:\n<execute>\nprint(6 * 7)\n</execute>\nlike\n```python\nprint('shown')\n```"
    final = "It is 42:\n```python\nprint('shown too')\n```"
    client = scripted(acts, final, final)
    agent = CodeActAgent("actor", session, model_client=client, prompt_style="execute")

    result = await agent.run(task=[TASK])

    named = (
        "Code in your message was not run:\n- a block labelled python: only code between <execute> and </execute> is run\n"
        f"{ANSWER_NOT_RUN}"
    )
    untagged = '[{"language": "python", "reason": "untagged"}]'
    assert comparable(result.messages[1:]) == [
        generation_event(1, acts, "print(6 * 7)", not_run=untagged),
        execution_event(1, "42\n"),
        generation_event(2, final, not_run=untagged, sent_back=named),
        answer_message(final, steps="3", not_run=untagged),
    ]
    assert received_by(client)[1][-1] == from_agent("42\n")
    assert received_by(client)[2][-1] == from_agent(named)
    assert "<execute>" in str(system(agent).content)
    assert "```python" not in str(system(agent).content)


async def test_the_last_step_is_followed_by_a_request_to_close(session: SandboxCodeExecutor) -> None:
    acts = python("print(1)")
    client = scripted(acts, acts, model_answer("As far as I can see, 42.", cost=5))
    agent = CodeActAgent("actor", session, model_client=client, budget=Budget(max_steps=2))

    result = await agent.run(task=[TASK])

    assert comparable(result.messages[1:]) == [
        generation_event(1, acts, "print(1)\n"),
        execution_event(1, "1\n"),
        generation_event(2, acts, "print(1)\n"),
        execution_event(2, "1\n"),
        answer_message("As far as I can see, 42.", cost=5, steps="2", stopped="max_steps"),
    ]
    assert received_by(client)[2][-1] == from_agent(prompt.CLOSING["max_steps"].format(limit=2) + prompt.CLOSE)


async def test_code_in_the_closing_answer_is_not_run(session: SandboxCodeExecutor) -> None:
    agent = CodeActAgent(
        "actor", session, model_client=scripted(python("print(1)"), python("print(2)")), budget=Budget(max_steps=1)
    )
    result = await agent.run(task=[TASK])
    not_run = '[{"language": "python", "reason": "answer"}]'
    answer = answer_message(python("print(2)"), steps="1", stopped="max_steps", not_run=not_run)
    assert comparable(result.messages[-1:]) == [answer]
    assert len(result.messages) == 4


async def test_token_limit_ends_the_turn(session: SandboxCodeExecutor) -> None:
    client = scripted(
        model_answer(python("print(1)"), cost=60),
        model_answer(python("print(2)"), cost=60),
        model_answer("Enough.", cost=7),
    )
    agent = CodeActAgent("actor", session, model_client=client, budget=Budget(max_tokens=100))

    result = await agent.run(task=[TASK])

    assert comparable(result.messages[-1:]) == [answer_message("Enough.", cost=7, steps="2", stopped="max_tokens")]
    assert received_by(client)[2][-1] == from_agent(prompt.CLOSING["max_tokens"] + prompt.CLOSE)


async def test_time_limit_ends_running_code_and_keeps_the_session(session: SandboxCodeExecutor) -> None:
    client = scripted(
        python("x = 1"), python("x = 2\nimport time\ntime.sleep(60)"), "No time.", python("print(x)"), "Done."
    )
    agent = CodeActAgent("actor", session, model_client=client, budget=Budget(max_seconds=4))

    result = await agent.run(task=[TASK])

    assert comparable(result.messages[1:]) == [
        generation_event(1, python("x = 1"), "x = 1\n"),
        execution_event(1, ""),
        generation_event(2, python("x = 2\nimport time\ntime.sleep(60)"), "x = 2\nimport time\ntime.sleep(60)\n"),
        answer_message("No time.", steps="2", stopped="max_seconds"),
    ]
    assert received_by(client)[2][-1] == from_agent(prompt.CLOSING["max_seconds"] + prompt.CLOSE)
    again = await agent.run(task="And x?")
    assert [m.result.output for m in again.messages if isinstance(m, CodeExecutionEvent)] == ["1\n"]


async def test_model_without_a_closing_answer_gets_a_note_as_answer(session: SandboxCodeExecutor) -> None:
    agent = CodeActAgent("actor", session, model_client=scripted(python("print(1)"), ""), budget=Budget(max_steps=1))
    result = await agent.run(task=[TASK])
    assert result.messages[-1].to_text() == prompt.NO_ANSWER.format(why="the limit of 1 steps was reached")


async def test_a_typed_answer_in_words_is_checked_and_sent_back(session: SandboxCodeExecutor) -> None:
    good = 'Here:\n```json\n{"total": 42}\n```'
    client = scripted("It is 42.", '{"total": "many"}', good)
    agent = CodeActAgent("actor", session, model_client=client, output_content_type=Sum)

    result = await agent.run(task=[TASK])

    no_json = prompt.MISFIT.format(problem="it holds no JSON")
    wrong = received_by(client)[2][-1].content
    assert isinstance(wrong, str)
    assert wrong.startswith("That answer does not fit: total: Input should be a valid integer")
    expected = StructuredMessage[Sum](
        content=Sum(total=42), source="actor", models_usage=token_usage(1), metadata={"steps": "3"}
    )
    assert comparable(result.messages[1:]) == [
        generation_event(1, "It is 42.", sent_back=no_json),
        generation_event(2, '{"total": "many"}', sent_back=wrong),
        plain(expected),
    ]
    assert received_by(client)[1][-2:] == [model("It is 42."), from_agent(no_json)]
    assert '"total"' in str(system(agent).content)


async def test_typed_values_of_final_answer_are_checked_and_may_be_json_text(
    session: SandboxCodeExecutor,
) -> None:
    wrong = python("final_answer('many')")
    right = python("import json\nfinal_answer(json.dumps({'total': 42}))")
    client = scripted(wrong, right)
    agent = CodeActAgent("actor", session, model_client=client, output_content_type=Sum)
    result = await agent.run(task=[TASK])
    metadata = {"steps": "2", "answered_by": "final_answer"}
    expected = StructuredMessage[Sum](content=Sum(total=42), source="actor", metadata=metadata)
    assert comparable(result.messages[-1:]) == [plain(expected)]
    assert "ValueError: the value: Input should be an object" in str(received_by(client)[1][-1].content)


async def test_a_typed_answer_that_never_fits_is_text_and_says_so(session: SandboxCodeExecutor) -> None:
    agent = CodeActAgent(
        "actor", session, model_client=scripted("a", "b"), output_content_type=Sum, budget=Budget(max_steps=1)
    )
    result = await agent.run(task=[TASK])
    assert comparable(result.messages[-1:]) == [
        answer_message("b", steps="1", stopped="max_steps", misfit="it holds no JSON")
    ]


async def test_setup_runs_once_in_each_session_and_is_in_the_system_message(session: SandboxCodeExecutor) -> None:
    setup = "import math\nruns = globals().get('runs', 0) + 1"
    client = scripted(
        python("print(math.floor(2.5), runs)"), "2.", python("print(runs)"), "1.", python("print(runs)"), "1."
    )
    agent = CodeActAgent("actor", session, model_client=client, setup=setup)

    results = [await agent.run(task="Floor?"), await agent.run(task="Again?")]
    await session.restart()
    results.append(await agent.run(task="And now?"))

    outputs = [m.result.output for r in results for m in r.messages if isinstance(m, CodeExecutionEvent)]
    assert outputs == ["2 1\n", "1\n", "1\n"]
    assert prompt.SETUP.format(setup=setup) in str(received_by(client)[0][0].content)


async def test_a_setup_that_fails_is_an_error(session: SandboxCodeExecutor) -> None:
    agent = CodeActAgent("actor", session, model_client=scripted(python("print(1)")), setup="import nothing_like_it")
    with pytest.raises(ValueError, match=r"The agent's setup failed\. (?s:.*)No module named 'nothing_like_it'"):
        await agent.run(task="Go.")


class Terse(CodeActAgent):
    """Shows its model little of an output."""

    MAX_OUTPUT_CHARS = 100


async def test_a_long_output_is_in_a_file_that_the_model_can_open(session: SandboxCodeExecutor) -> None:
    prints = python("import os; os.chdir('/tmp')\nfor number in range(1000):\n    print(number)")
    opens = python("print(open('/workspace/.codeact/actor-output-1.txt').read().split()[500])")
    client = scripted(prints, opens, "Done.")
    agent = Terse("actor", session, model_client=client)

    result = await agent.run(task="Count.")

    output = "".join(f"{number}\n" for number in range(1000))
    gap = "[… 3790 characters left out here; all of it is in the file /workspace/.codeact/actor-output-1.txt …]"
    assert received_by(client)[1][-1] == from_agent(f"{output[:50]}\n{gap}\n{output[-50:]}")
    assert comparable([result.messages[4]]) == [execution_event(2, "500\n")]


async def test_file_of_an_output_is_mentioned_only_as_far_as_it_was_written(bubblewrap: None) -> None:
    floods = python("print('a' * 6000, end='')")
    fills = python(
        "import os\nfiller = os.open('filler', os.O_WRONLY | os.O_CREAT)\n"
        "try:\n    while True: os.write(filler, b'x' * 4096)\nexcept OSError:\n    print('b' * 300, end='')"
    )
    client = scripted(floods, fills, "Done.")
    limits = Limits(workspace="1m", output=4096)
    async with BubblewrapCommandLineCodeExecutor(mode="session", timeout=20, limits=limits) as executor:
        await Terse("actor", executor, model_client=client).run(task="Go.")

    half, few = "a" * 50, "b" * 50
    kept = "; all that was kept of the output is in the file /workspace/.codeact/actor-output-1.txt"
    flooded, filled = (str(call[-1].content) for call in received_by(client)[1:3])
    assert flooded == (
        f"{half}\n[… 4027 characters left out here{kept} …]\n{half}\n\n"
        "1904 bytes of output were too much to keep and are gone."
    )
    assert filled.startswith(f"{few}\n[… 200 characters left out here …]\n{few}\n\nFiles made or changed: filler (")


# Among others


@pytest.mark.parametrize("kind", [RoundRobinGroupChat, Team])
async def test_two_agents_in_a_team_are_shown_by_the_console(
    session: SandboxCodeExecutor, capsys: pytest.CaptureFixture[str], kind: Any
) -> None:
    one = CodeActAgent(
        "one", session, model_client=scripted(python("x = 6; print('six')"), "x is 6."), stream_output=True
    )
    two = CodeActAgent(
        "two", session, model_client=scripted(python("final_answer({'total': x * 7})")), output_content_type=Sum
    )
    team = kind([one, two], termination_condition=MaxMessageTermination(3))

    result = await Console(team.run_stream(task="6 * 7?"))

    assert isinstance(result, TaskResult)
    assert [(type(message), message.source) for message in result.messages] == [
        (TextMessage, "user"),
        (CodeGenerationEvent, "one"),
        (CodeExecutionEvent, "one"),
        (TextMessage, "one"),
        (CodeGenerationEvent, "two"),
        (CodeExecutionEvent, "two"),
        (StructuredMessage[Sum], "two"),
    ]
    shown = capsys.readouterr().out
    assert "six\n" in shown
    assert '"total":42' in shown
    assert received_by(two.model_client)[0][1:] == [  # type: ignore[arg-type]
        UserMessage(content="6 * 7?", source="user"),
        UserMessage(content="x is 6.", source="one"),
    ]


async def test_autogens_executor_works_without_final_answer(executor: CodeExecutor) -> None:
    client = scripted(python("print(6 * 7)"), "42.")
    agent = CodeActAgent("actor", executor, model_client=client)
    result = await agent.run(task="6 * 7?")
    assert result.messages[-1].to_text() == "42."
    assert received_by(client)[1][-1] == from_agent("42\n")
    system = str(received_by(client)[0][0].content)
    assert (ANSWER_IN_WORDS in system, ANSWER_BY_CALL in system) == (True, False)
    assert (await agent.save_state())["journal"] is None
