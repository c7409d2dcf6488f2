"""Several attempts at each step: what is kept, what the model is told, and that the others leave no trace."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import CodeExecutionEvent
from autogen_core.models import SystemMessage
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import Attempt, CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from codeact_sandbox import HostTool, Limits
from codeact_sandbox.host.protocol import Frame
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
from tests.agents.conftest import started
from tests.agents.support import model_answer, received_by, scripted
from tests.cases import case

TASK = "What is 6 * 7?"


def told(agent: CodeActAgent) -> list[Any]:
    assert agent._conversation is not None
    return [SystemMessage(content=agent._conversation.system_message or ""), user(TASK)]


def code_of(message: str) -> str:
    return message.removeprefix("```python\n").removesuffix("```")


def without_files(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Messages without what differs from run to run, and without the paths of files."""
    for event in messages:
        if isinstance(event, CodeExecutionEvent):
            event.result.artifacts = ()  # type: ignore[attr-defined]
    return comparable(messages)[1:]


async def test_first_attempt_that_succeeds_is_kept_and_the_others_leave_no_trace(backend: str, tmp_path: Path) -> None:
    fails = python("x = 1; open('lost.txt', 'w').write('lost'); raise ValueError('no')")
    works = python("x = 42; open('kept.txt', 'w').write('kept'); print(x)")
    late, look = python("x = 3; print('late')"), python("import os; print(x, sorted(os.listdir()))")
    answers = (fails, works, late, look, look, look, "It is 42.", "It is 43.", "It is 44.")
    costs = (1, 2, 4, 1, 1, 1, 1, 1, 1)
    client = scripted(*(model_answer(each, cost=cost) for each, cost in zip(answers, costs, strict=True)))
    async with started(backend, work_dir=tmp_path) as executor:
        agent = CodeActAgent("actor", executor, model_client=client, attempts=3, describe_environment=False)
        result = await agent.run(task=TASK)
        again = await executor.run("print(x, sorted(os.listdir()))")
    assert agent.journal is not None
    assert [entry.code for entry in agent.journal.entries] == [code_of(works), code_of(look)]
    files = [file.name for event in result.messages[2::2] for file in getattr(event, "result", again).artifacts]
    assert files == ["kept.txt"]
    assert without_files(result.messages) == [
        generation_event(1, works, code_of(works), cost=7, attempts="3", kept="2"),
        execution_event(1, "42\n"),
        generation_event(2, look, code_of(look), cost=3, attempts="3", kept="1"),
        execution_event(2, "42 ['kept.txt']\n"),
        answer_message("It is 42.", cost=3, steps="3"),
    ]
    assert (again.output, os.listdir(tmp_path)) == ("42 ['kept.txt']\n", ["kept.txt"])
    first = [*told(agent)]
    second = [*first, model(works), received_by(client)[3][-1]]
    third = [*second, model(look), from_agent("42 ['kept.txt']\n")]
    assert received_by(client) == [first] * 3 + [second] * 3 + [third] * 3
    assert str(second[-1].content).startswith("42\n")
    assert "lost" not in str(third)


async def test_check_function_or_model_chooses(backend: str) -> None:
    attempts = [python(f"x = {value}; print(x)") for value in (1, 2, 3)]
    seen: list[tuple[int, str | None, bool]] = []

    def highest(tried: Sequence[Attempt]) -> Attempt:
        seen.extend((each.number, each.result and each.result.output, each.succeeded) for each in tried)
        return max(tried, key=lambda each: int(each.result.output) if each.result is not None else 0)

    async with started(backend) as executor:
        for more, kept, extra in (
            ({"check": "assert x == 2"}, 2, []),
            ({"choose": highest}, 3, []),
            ({"choose": "model"}, 1, ["I take 1."]),
        ):
            with case(str(more)):
                client = scripted(*attempts, *extra, *(["Done."] * 3))
                agent = CodeActAgent(
                    "actor", executor, model_client=client, attempts=3, describe_environment=False, **more
                )
                result = await agent.run(task=TASK)
                assert without_files(result.messages)[-3:] == [
                    generation_event(
                        1,
                        attempts[kept - 1],
                        f"x = {kept}; print(x)\n",
                        cost=3 + len(extra),
                        attempts="3",
                        kept=str(kept),
                    ),
                    execution_event(1, f"{kept}\n"),
                    answer_message("Done.", cost=3, steps="2"),
                ]
                assert (await executor.run("print(x)")).output == f"{kept}\n"
    assert seen == [(1, "1\n", True), (2, "2\n", True), (3, "3\n", True), (1, None, True)]
    question = received_by(client)[3][-1].content
    assert "Attempt 2:\n```python\nx = 2; print(x)\n```\nOutput:\n2\n" in str(question)
    assert [each.content for each in received_by(client)[4]][2:] == [attempts[0], "1\n"]


@pytest.mark.parametrize("chosen", [1, 2, 3])
async def test_chosen_attempt_is_kept_without_running_it_again(backend: str, tmp_path: Path, chosen: int) -> None:
    calls: list[int] = []

    def count(number: int) -> int:
        """Count a call."""
        calls.append(number)
        return len(calls)

    attempts = [
        python(
            f"import os, random; x = count({number}), random.random(); open('{number}.txt', 'w').write(str(x)); "
            f"open('data.txt', 'w').write('{number}'); os.mkdir('folder {number}'); os.chdir('folder {number}'); "
            f"os.environ['N'] = '{number}'; print(x)"
        )
        for number in (1, 2, 3)
    ]
    look = python("print(x, os.environ['N'], os.getcwd(), sorted(os.listdir('..')), open('../data.txt').read())")
    (tmp_path / "data.txt").write_text("before")
    outputs: list[str] = []

    def choose(tried: Sequence[Attempt]) -> int:
        outputs.extend(each.result.output.strip() for each in tried if each.result is not None)
        assert os.listdir(tmp_path) == ["data.txt"] or len(tried) == 1
        return chosen if len(tried) == 3 else 1

    async with started(backend, work_dir=tmp_path) as executor:
        tools = [HostTool(count, branch_safe=True)]
        client = scripted(*attempts, *[look] * 3, *["Done."] * 3)
        agent = CodeActAgent("actor", executor, model_client=client, attempts=3, choose=choose, tools=tools)
        result = await agent.run(task=TASK)
        again = await executor.run("print(x)")
        sandbox: Any = executor.client
        for name in ("branch 0", "branch 1", "branch 2"):
            with pytest.raises(ValueError, match="there is no checkpoint"):
                await sandbox.requests.ask({"name": name}, kind=Frame.ROLL_BACK)
    assert calls == [1, 2, 3]
    events = [event for event in result.messages if isinstance(event, CodeExecutionEvent)]
    assert [event.result.output.strip() for event in events] == [
        outputs[chosen - 1],
        f"{outputs[chosen - 1]} {chosen} /workspace/folder {chosen} ['{chosen}.txt', 'data.txt', 'folder {chosen}'] {chosen}",
    ]
    assert sorted(file.name for file in events[0].result.artifacts) == [f"{chosen}.txt", "data.txt"]  # type: ignore[attr-defined]
    assert (again.output.strip(), (tmp_path / "data.txt").read_text()) == (outputs[chosen - 1], str(chosen))
    assert sorted(name for name in os.listdir(tmp_path) if name.endswith(".txt")) == [f"{chosen}.txt", "data.txt"]
    assert agent.journal is not None
    assert [entry.code for entry in agent.journal.entries] == [code_of(attempts[chosen - 1]), code_of(look)]


async def test_chosen_attempt_that_there_was_no_room_to_hold_runs_again(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    large = python("x = b'1' * (200 * 2**20); print(len(x))")
    async with started(backend, limits=Limits(memory="256m")) as executor:
        client = scripted(large, python("x = 2; print(x)"), "Done.", "Done.")
        agent = CodeActAgent("actor", executor, model_client=client, attempts=2, choose=lambda _: 1)
        result = await agent.run(task=TASK)
        assert (await executor.run("print(len(x))")).output == "209715200\n"
    outputs = [event.result.output for event in result.messages if isinstance(event, CodeExecutionEvent)]
    assert outputs == ["209715200\n"]
    assert "attempt 1 runs again if it is chosen: the session can't be branched: no checkpoint was taken" in caplog.text


async def test_step_runs_singly_if_no_attempt_gets_by_without_a_host_tool(backend: str) -> None:
    sent: list[str] = []

    def send(text: str) -> str:
        """Send a text."""
        sent.append(text)
        return text

    def look(text: str) -> str:
        """Look a text up."""
        return text.upper()

    sends, looks = python("print(send('a'))"), python("print(look('b'))")
    client = scripted(sends, sends + " ", sends, looks, "Done.", "Done.")
    async with started(backend) as executor:
        agent = CodeActAgent(
            "actor", executor, model_client=client, attempts=2, tools=[send, HostTool(look, branch_safe=True)]
        )
        result = await agent.run(task=TASK)
        assert [event.result.output for event in result.messages if isinstance(event, CodeExecutionEvent)] == [
            "a\n",
            "B\n",
        ]
        assert sent == ["a"]
        assert [event.metadata["kept"] for event in result.messages if "kept" in event.metadata] == ["1", "2"]


async def test_attempts_that_end_the_turn_hang_or_kill_the_session(backend: str) -> None:
    hangs, dies = python("while True: pass"), python("import os; x = 2; os.kill(os.getpid(), 9)")
    client = scripted(python("x = 1"), python("x = 1"), hangs, python("final_answer(x)"), dies, dies, "Gone.", "Gone.")
    async with started(backend) as executor:
        executor.timeout = 2
        agent = CodeActAgent("actor", executor, model_client=client, attempts=2)
        result = await agent.run(task=TASK)
        assert (result.messages[-1].to_text(), result.messages[-1].metadata) == (  # type: ignore[union-attr]
            "1",
            {"steps": "2", "answered_by": "final_answer"},
        )
        result = await agent.run(task=TASK)
        outcomes = [event.result.outcome for event in result.messages if isinstance(event, CodeExecutionEvent)]  # type: ignore[attr-defined]
        assert outcomes == ["crashed"]
        assert (await executor.run("print(x)")).output == "1\n"


async def test_errors_of_some_answers_and_of_all(bubblewrap: None) -> None:
    class Failing(ReplayChatCompletionClient):
        async def create(self, *arguments: Any, **options: Any) -> Any:
            answer = await super().create(*arguments, **options)
            if answer.content == "fail":
                raise ConnectionError("the server is busy")
            return answer

    async with started("bubblewrap") as executor:
        agent = CodeActAgent("actor", executor, model_client=Failing(["fail", "Good."]), attempts=2)
        result = await agent.run(task=TASK)
        assert result.messages[-1].to_text() == "Good."  # type: ignore[union-attr]
        agent = CodeActAgent("actor", executor, model_client=Failing(["fail", "fail"]), attempts=2)
        with pytest.raises(ConnectionError, match="busy"):
            await agent.run(task=TASK)


async def test_bad_arguments_and_configuration(bubblewrap: None, tmp_path: Path) -> None:
    executor = BubblewrapCommandLineCodeExecutor(mode="session")
    for options, error, message in (
        ({"attempts": 0}, ValueError, "attempts must be from 1 to 16, not 0."),
        ({"attempts": 1000}, ValueError, "attempts must be from 1 to 16, not 1000."),
        ({"attempts": True}, ValueError, "attempts must be from 1 to 16, not True."),
        ({"attempts": 2, "choose": "best"}, TypeError, "choose must be 'model' or a function"),
        ({"attempts": 2, "check": 1}, TypeError, "check must be Python code as text, not a int."),
        ({"choose": "model"}, ValueError, "check and choose need attempts"),
    ):
        with case(str(options)), pytest.raises(error, match=message):
            CodeActAgent("actor", executor, model_client=scripted("x"), **options)  # type: ignore[arg-type]
    bound = BubblewrapCommandLineCodeExecutor(mode="session", bind_dir=tmp_path)
    with pytest.raises(ValueError, match="attempts can't be undone in this sandbox"):
        CodeActAgent("actor", bound, model_client=scripted("x"), attempts=2)
    agent = CodeActAgent("actor", executor, model_client=scripted("x"), attempts=3, choose=lambda tried: tried[0])
    with pytest.raises(ValueError, match="choose is a function, which has no configuration"):
        agent.dump_component()
