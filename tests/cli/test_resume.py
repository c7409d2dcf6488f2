"""`codeact resume`, also of a run that waits for answers."""

import json

import pytest
from autogen_agentchat.messages import TextMessage
from jsonschema import Draft202012Validator

from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.cli.transcript import Transcript
from tests.cli.support import code, codeact, replay, start, wait_until
from tests.cli.test_json_output import SCHEMA
from tests.openai_server import OpenAIServer, Reply


@pytest.mark.usefixtures("bubblewrap")
def test_a_run_that_failed_is_continued_with_what_it_had(tmp_path):
    folder = tmp_path / "run"
    replies = [code("x = 6"), Reply("out of order", status=400), code("final_answer(x * 7)")]
    with OpenAIServer([replies[0], replies[1], replies[2]]) as server:
        key = {"OPENAI_API_KEY": "sk-not-a-key-at-all"}
        model = ["--model", "gpt-4o", "--base-url", server.base_url, "--sandbox", "bubblewrap"]
        failed = codeact("run", "--act", "What is 6*7?", *model, "--save", folder, env=key)
        without_key = codeact("resume", folder)
        done = codeact("resume", folder, "--json", env=key)
        again = codeact("resume", folder, env=key)
    assert failed.status == 2
    assert "out of order" in failed.err
    *_, reason, hint = failed.err.splitlines()
    assert reason.startswith("codeact: The run failed. BadRequestError: ")
    assert hint == f"codeact: `codeact resume {folder}` continues the run"
    assert (without_key.status, without_key.err) == (
        2,
        "codeact: There is no key for gpt-4o: set OPENAI_API_KEY, or name another variable with --api-key-env.\n",
    )
    assert done.status == 0
    assert "codeact: rebuilding the session: 1 block " in done.err
    assert [each["type"] for each in done.objects] == [
        "CodeGenerationEvent",
        "CodeExecutionEvent",
        "TextMessage",
        "TaskResult",
    ]
    assert done.objects[2]["content"] == "42"
    assert (again.status, again.out) == (2, "")
    assert (
        again.err
        == f"codeact: {folder} is finished: there is nothing to continue. `codeact show {folder}` prints it.\n"
    )


@pytest.mark.usefixtures("bubblewrap")
def test_model_of_a_continued_run_has_a_time_limit_retries_and_the_key_of_its_server(tmp_path):
    folder = tmp_path / "run"
    busy = Reply("later", status=429, headers={"retry-after": "0.1"})
    with OpenAIServer(
        [Reply("out of order", status=400), Reply(silent=True), busy, code("final_answer(42)")]
    ) as server:
        env = {"OLLAMA_HOST": server.base_url.removeprefix("http://").removesuffix("/v1")}  # which needs no key
        model = ["--model", "ollama/small", "--sandbox", "bubblewrap"]
        failed = codeact("run", "--act", "What is 6*7?", *model, "--save", folder, env=env)
        silent = codeact("resume", folder, "--model-timeout", "0.5", env=env)
        done = codeact("resume", folder, env=env)
    assert "out of order" in failed.err
    assert silent.status == 2
    assert "The run failed. The model sent nothing for 0.5 s. --model-timeout SECONDS waits longer" in silent.err
    assert done.status == 0
    assert [request["model"] for request in server.requests] == ["small"] * 4


@pytest.mark.usefixtures("bubblewrap")
def test_a_continued_run_asks_before_code_runs_as_before(tmp_path):
    folder = tmp_path / "run"
    with OpenAIServer([Reply("out of order", status=400), code("print('r' 'an')"), "It may not run."]) as server:
        key = {"OPENAI_API_KEY": "sk-not-a-key-at-all"}
        model = ["--model", "gpt-4o", "--base-url", server.base_url, "--sandbox", "bubblewrap"]
        failed = codeact("run", "--act", "--approve", "Run it", *model, "--save", folder, env=key)
        done = codeact("resume", folder, env=key)
    assert f"codeact: `codeact resume {folder}` continues the run\n" in failed.err
    assert "can't be continued" not in done.err
    assert "not approved" in done.out  # there is no terminal to ask in
    assert "\nran\n" not in done.out
    assert "It may not run." in done.out


@pytest.mark.usefixtures("bubblewrap")
def test_recorded_answers_go_on_after_those_that_were_given(tmp_path):
    folder = tmp_path / "run"
    answers = [
        "```python\nx = 6\n```",
        "```python\nimport time\ntime.sleep(60)\n```",
        "```python\nfinal_answer(x * 7)\n```",
    ]
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    model = ["--model", f"replay:{tmp_path / 'answers.json'}", "--sandbox", "bubblewrap"]
    log = folder / "events.jsonl"
    with start("run", "--act", "What is 6*7?", *model, "--save", folder) as process:
        wait_until(lambda: log.exists() and log.read_bytes().count(b'"block_started"') == 2, "the second block")
        process.kill()
    done = codeact("resume", folder)
    assert done.status == 0
    assert done.out == (
        "== Step 2 in the sandbox ==\n"
        "(no output)\n"
        "The session's variables were put back to before this code.\n"
        "interrupted while it ran; whether it finished is unknown\n\n"
        "== The model writes code (step 3) ==\n"
        "```python\nfinal_answer(x * 7)\n```\n\n"
        "== Step 3 in the sandbox ==\n"
        f"(no output)\nok, {done.out.rpartition('ok, ')[2].partition(chr(10))[0]}\n\n"
        "== The model's answer ==\n42\n\n"
    )
    shown = codeact("show", folder)
    assert shown.out.endswith(done.out)


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_what_interrupted_code_has_printed_comes_back(tmp_path, options):
    folder, loop = tmp_path / "run", "import time\nprint('half ' + 'done ' + 'x' * 100_000, flush=True)\ntime.sleep(60)"
    model = ["--model", replay(tmp_path, code(loop), code("final_answer(42)")), "--sandbox", "bubblewrap"]
    log = folder / "events.jsonl"
    with start("run", "--act", "What is 6*7?", *model, "--save", folder, *options) as process:
        wait_until(lambda: log.exists() and b'"chunk"' in log.read_bytes().rpartition(b"\n")[0], "the output")
        process.kill()
    done = codeact("resume", folder)
    assert done.status == 0
    assert "== Step 1 in the sandbox ==\nhalf done xxx" in done.out
    assert "half done" in codeact("show", folder).out


def test_code_of_a_team_without_a_known_end_is_shown_so(capsys):
    metadata = {"outcome": "crashed", "exit_code": "1", "duration_s": "0.000", "error": "Interrupted"}
    message = TextMessage(content="It is not known.", source="executor", metadata=metadata)
    Transcript(Terminal(), team=True).show(message)
    assert capsys.readouterr().out == "== executor ==\nIt is not known.\nwhether the code finished is unknown\n\n"


KEY = {"OPENAI_API_KEY": "sk-not-a-key-at-all"}


@pytest.mark.usefixtures("bubblewrap")
def test_run_waits_for_each_answer_and_goes_on(tmp_path):
    folder = tmp_path / "run"
    with OpenAIServer([code("x = 6"), code("final_answer(x * 7)"), "It may not."]) as server:
        model = ["--model", "gpt-4o", "--base-url", server.base_url, "--sandbox", "bubblewrap"]
        waits = codeact("run", "--act", "What is 6*7?", "--approve-later", *model, "--save", folder, env=KEY)
        listed = codeact("runs", tmp_path, "--json")
        shown = codeact("show", folder)
        early = codeact("resume", folder, env=KEY)
        second = codeact("resume", folder, "--approve", "--json", env=KEY)
        unclear = codeact("resume", folder, "--question", "q2", env=KEY)
        unknown = codeact("resume", folder, "--question", "q9", "--approve", env=KEY)
        done = codeact("resume", folder, "--deny", "too expensive", env=KEY)
        over = codeact("resume", folder, "--deny", "too late", env=KEY)
    question = "q1: may coder run this code?\n```python\nx = 6\n```"
    said = (
        f"{folder} waits for an answer:\n{question}\n"
        f"`codeact resume {folder} --approve` or `--deny REASON` answers, and the run goes on.\n"
    )
    assert waits.status == 4
    assert waits.err.endswith(f"codeact: {said}")
    assert [json.loads(line)["outcome"] for line in listed.out.splitlines()] == ["waiting"]
    assert (shown.status, shown.err) == (0, f"codeact: {said}")
    assert (early.status, early.err) == (4, f"codeact: {said}")
    assert (second.status, second.objects[-1]) == (
        4,
        {
            "type": "waiting",
            "outcome": "waiting",
            "questions": {"q2": "q2: may coder run this code?\n```python\nfinal_answer(x * 7)\n```"},
            "run": str(folder),
        },
    )
    Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(second.objects[-1])
    assert (unclear.status, unclear.err) == (2, "codeact: Answer with either --approve or --deny REASON.\n")
    assert (unknown.status, unknown.err) == (2, f"codeact: {folder} has no question 'q9'; it waits for q2.\n")
    assert "It may not." in done.out
    assert "the person said no: too expensive" in done.out
    assert over.status == 2
    assert "is finished: there is nothing to continue" in over.err


def test_options_that_do_not_fit_are_refused(tmp_path):
    run = codeact("run", "Go", "--approve-later", "--save", "none", "--model", "gpt-4o", env=KEY)
    assert (run.status, run.err) == (
        2,
        "codeact: --approve-later keeps the question in the run: leave --approve and --save none out.\n",
    )
