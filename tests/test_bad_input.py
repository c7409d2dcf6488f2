"""Bad input in tasks and answers: each gives a clear error, or a result that the model receives; a good run follows."""

import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.agents.code_executor_agent import CUT_OFF_BY_OTHERS
from autogen_codeact.executors import DockerCommandLineCodeExecutor
from tests.bench import ALONE, EVERYBODY, PAIR, WITH_MODEL, Bench, working
from tests.openai_server import OpenAIServer, Reply, structured
from tests.wire import by, decision, fenced, model, received_messages, texts_of

pytestmark = [pytest.mark.usefixtures("docker_engine"), structured]

MEGABYTE = 1024 * 1024
GIVES_UP = "I give up. TERMINATE"
CUT = "Here:\n```python\nprint(6 * 7)\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(docker_engine: str) -> AsyncIterator[DockerCommandLineCodeExecutor]:
    """One sandbox for all tests of this file: none of them may break it."""
    async with DockerCommandLineCodeExecutor(timeout=30) as executor:
        yield executor


def file_of(code: str) -> str:
    return f"/workspace/tmp_code_{hashlib.sha256(code.encode()).hexdigest()}.py"


# Nothing to do


@pytest.mark.parametrize("kind", EVERYBODY)
async def test_empty_task_is_an_error(executor: Any, kind: str) -> None:
    async with working(kind, executor) as bench:
        for task in ("", " \n\t "):
            with pytest.raises(ValueError, match=r"no task|empty"):
                await bench.run("Nothing to do. TERMINATE", task=task)
        assert bench.server.requests == []


async def test_later_empty_message_is_ignored(executor: Any) -> None:
    async with working(ALONE, executor) as bench:
        await bench.run("Which one?", task="Print a number.")
        await bench.run("Which one?", task="")
        assert received_messages(bench.server)[0][1:] == [by("user", "Print a number."), model("Which one?")]


# Answers without code that can be run


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (CUT, CUT_OFF_BY_OTHERS),
        ("I will think about it.", CodeExecutorAgent.NO_CODE_BLOCKS_FOUND_MESSAGE),
        ("```text\nprint(1)\n```", CodeExecutorAgent.NO_CODE_BLOCKS_FOUND_MESSAGE),
        (
            "```\x00\x01\nprint(1)\n```",
            f"{CodeExecutorAgent.NO_CODE_BLOCKS_FOUND_MESSAGE} Code in the thread was not run:\n"
            "- a block labelled ??: only python or sh is run here",
        ),
    ],
    ids=["unclosed", "no block", "not code", "binary label"],
)
async def test_coder_receives_a_message_if_there_is_no_code_to_run(executor: Any, answer: str, words: str) -> None:
    async with working(PAIR, executor) as bench:
        await bench.run(answer, GIVES_UP)
        assert bench.last_message_to_model() == ("executor", words)


@pytest.mark.parametrize("kind", WITH_MODEL)
@pytest.mark.parametrize("answer", ["42, I think.", "```text\nprint(1)\n```", "\x00"])
async def test_answer_without_code_is_the_final_answer(executor: Any, kind: str, answer: str) -> None:
    async with working(kind, executor) as bench:
        result = await bench.run(answer)
        assert texts_of(result.messages) == [("user", "Print 42."), ("coder", answer)]


# Large input


# What finds the code in the text is the same for everybody, so the other texts are for one of them.
@pytest.mark.parametrize(
    ("filler", "kind"),
    [("All work and no play.\n", kind) for kind in EVERYBODY]
    + [("> * 1. ~~`` <execute", EVERYBODY[0]), ("`" * 2 + "\n", EVERYBODY[0])],
)
async def test_block_within_ten_megabytes_of_text_runs(executor: Any, kind: str, filler: str) -> None:
    prose = filler * (10 * MEGABYTE // len(filler))
    async with working(kind, executor) as bench:
        await bench.run(f"{prose}\n\n{fenced('print(6 * 7)' + chr(10))}", GIVES_UP)
        assert bench.last_message_to_model() == (bench.runner, "42\n")


@pytest.mark.parametrize("kind", EVERYBODY)
async def test_ten_megabytes_of_code_are_refused_with_a_message(executor: Any, kind: str) -> None:
    code = "print(1)\n" * (10 * MEGABYTE // 9)
    refusal = f"The code has {len(code):,} bytes; at most 8,323,072 can be run at once."
    async with working(kind, executor) as bench:
        answers = [GIVES_UP] if kind == PAIR else [decision(False), GIVES_UP]
        result = await bench.run(fenced(code), *answers)
        who, words = bench.last_message_to_model()
        assert (who, words) == (
            bench.runner,
            f"The code could not be run (exit code 1)\nIts output was:\n{refusal}",
        )
        outcome = result.messages[2].metadata
        assert (outcome["outcome"], outcome["error"]) == ("error", "CodeTooLarge")


# Binary


@pytest.mark.parametrize("kind", EVERYBODY)
async def test_null_bytes_in_code_are_reported(executor: Any, kind: str) -> None:
    code = "print('a\x00b')\n"
    async with working(kind, executor) as bench:
        answers = [GIVES_UP] if kind == PAIR else [decision(False), GIVES_UP]
        result = await bench.run(fenced(code), *answers)
        assert result.messages[2].metadata["outcome"] == "error"
        who, words = bench.last_message_to_model()
        assert who == bench.runner
        assert words.startswith("The script ran, then exited with an error (POSIX exit code: 1)\nIts output was:\n")
        assert words.endswith("source code string cannot contain null bytes\n")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", WITH_MODEL)
async def test_lone_surrogates_in_an_answer_are_handled(executor: Any, kind: str, stream: bool) -> None:
    halves = "\ud83d\ude00 is whole, \ud83d is not, nor is \ude00.\n" + fenced("print('\ud83d\ude00', '\ud83d')\n")
    mended = "\U0001f600 is whole, \ufffd is not, nor is \ufffd.\n" + fenced("print('\U0001f600', '\ufffd')\n")
    async with working(kind, executor, stream=stream) as bench:
        result = await bench.run(Reply(halves, thought="Or \ud800"), "The end \ude00")
        assert received_messages(bench.server)[1][2:] == [model(mended), by("coder", "\U0001f600 \ufffd\n")]
        assert texts_of(result.messages) == [
            ("user", "Print 42."),
            ("coder", "Or \ufffd"),
            ("coder", mended),
            ("coder", "\U0001f600 \ufffd\n"),
            ("coder", "The end \ufffd"),
        ]
        for message in result.messages:
            message.model_dump_json()


async def test_streamed_chunks_add_up_to_the_answer(executor: Any) -> None:
    answer = "eleven char\ud83d\ude00s, and a half at the end \ud83d"  # the server cuts after twelve
    async with OpenAIServer([answer]) as server:
        bench = Bench(ALONE, server, executor, stream=True)
        *chunks, final = [item.to_text() async for item in bench.agent.run_stream(task="Talk.") if hasattr(item, "id")]
        assert "".join(chunks[1:]) == final == "eleven char\U0001f600s, and a half at the end \ufffd"
        await bench.works()


@pytest.mark.parametrize("kind", WITH_MODEL)
async def test_lone_surrogates_in_a_task_are_handled(executor: Any, kind: str) -> None:
    async with working(kind, executor) as bench:
        await bench.run("A half.", task="What is \ud800?")
        assert received_messages(bench.server)[0][1:] == [by("user", "What is \ufffd?")]
        json.dumps(await bench.whom.save_state())


@pytest.mark.parametrize("where", ["in the task", "in the answer"])
async def test_lone_surrogates_from_autogens_assistant_are_an_error(executor: Any, where: str) -> None:
    """AutoGen's assistant keeps them, but its client can't send them: an error, and the conversation must be reset."""
    async with working(PAIR, executor) as bench:
        task, answer = ("\ud800", "ok TERMINATE") if where == "in the task" else ("Print.", fenced("print('\ud800')\n"))
        with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
            await bench.run(answer, GIVES_UP, task=task)
        await bench.whom.reset()


BAD_NAMES = ["a\x00b.py", "../../etc/passwd", "/etc/passwd", "a" * 5000 + ".py", "."]


# What checks the name is the same for everybody.
@pytest.mark.parametrize(
    ("name", "kind"), [(name, EVERYBODY[number % len(EVERYBODY)]) for number, name in enumerate(BAD_NAMES)]
)
async def test_invalid_file_name_is_a_failed_result(executor: Any, kind: str, name: str) -> None:
    async with working(kind, executor) as bench:
        answers = [GIVES_UP] if kind == PAIR else [decision(False), GIVES_UP]
        result = await bench.run(fenced(f"# filename: {name}\nprint(1)\n"), *answers)
        outcome = result.messages[2].metadata
        assert (outcome["outcome"], outcome["error"]) == ("error", "BadFilename")
        outside = name.startswith(("/", ".."))
        why = "Filename is not in the workspace." if outside else "The `filename:` comment can't be followed."
        assert f"{why} The file name" in bench.last_message_to_model()[1]


@pytest.mark.parametrize("name", [BAD_NAMES[1], "\ud800.py"])
async def test_invalid_file_name_without_a_model_is_a_failed_result(executor: Any, name: str) -> None:
    runner = CodeExecutorAgent("runner", executor)
    result = await runner.run(task=fenced(f"# filename: {name}\nprint(1)\n"))
    assert result.messages[-1].metadata["error"] == "BadFilename"
    assert texts_of((await runner.run(task=fenced("print(6 * 7)\n"))).messages)[-1] == ("runner", "42\n")
