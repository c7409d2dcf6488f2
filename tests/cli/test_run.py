"""`codeact run`: one task, with a recording, a component, and a server that speaks OpenAI's format."""

import json
import re

import pytest

from tests.cli.support import code, codeact, decision, in_bubblewrap, on_terminal, replay
from tests.openai_server import OpenAIServer, Reply

pytestmark = pytest.mark.usefixtures("docker_engine", "bubblewrap")

FAILS = "First try.\n" + code("print('one')", "1 / 0")
WORKS = "Second try.\n" + code("print(6 * 7)")
KEY = {"OPENAI_API_KEY": "sk-of-the-tests"}
REPAIRED = [
    "TextMessage",
    "CodeGenerationEvent",
    "CodeExecutionEvent",
    "CodeGenerationEvent",
    "CodeGenerationEvent",
    "CodeExecutionEvent",
    "TextMessage",
    "TaskResult",
]


def run(*arguments, **more):
    """Run a task without keeping the run; test_saved_runs.py is about those that are kept.

    Without another choice the sandbox is bubblewrap, which starts faster than a container.
    """
    if {"--sandbox", "image=autogen-codeact/sandbox:0.2"} & set(arguments):
        return codeact("run", *arguments, "--save", "none", **more)
    return in_bubblewrap("run", *arguments, "--save", "none", **more)


def kinds(done):
    return [entry["type"] for entry in done.objects]


def served(*replies, arguments, refuses=frozenset(), env=KEY):
    """Run a task with a model on a real server; return the result and the server with its requests."""
    with OpenAIServer(list(replies), refuses=refuses) as server:
        done = run("What is 6*7?", "--base-url", server.base_url, *arguments, env=env)
    return done, server


# Recordings


def test_json_is_one_message_per_line_and_a_task_result(tmp_path):
    model = replay(tmp_path, FAILS, decision(True), {"content": WORKS, "thought": "hm"}, "It is 42.")
    done = run("What is 6*7?", "--model", model, "--json")
    assert (done.status, done.err) == (0, "")
    assert kinds(done) == [*REPAIRED[:4], "ThoughtEvent", *REPAIRED[4:]]
    task, first, failed, decided, thought, second, worked, answer, result = done.objects
    assert (task["source"], task["content"]) == ("user", "What is 6*7?")
    assert first["code_blocks"] == [{"code": "print('one')\n1 / 0\n", "language": "python"}]
    assert (failed["result"]["exit_code"], failed["metadata"]["error"]) == (1, "ZeroDivisionError")
    assert decided["metadata"] == {"retry": "true"}
    assert decided["content"] == "Attempt number: 1\nProposed correction: use 2"
    assert (thought["content"], second["retry_attempt"]) == ("hm", 1)
    assert worked["result"] == {"exit_code": 0, "output": "42\n"}
    assert (answer["source"], answer["content"]) == ("coder", "It is 42.")
    assert result == {
        "type": "TaskResult",
        "stop_reason": None,
        "outcome": "completed",
        "answer": "It is 42.",
        "run": None,
    }


def test_text_output_has_a_title_per_step_and_no_colours(tmp_path):
    done = run("What is 6*7?", "--model", replay(tmp_path, FAILS, decision(True), WORKS, "It is **42**."))
    assert (done.status, done.err) == (0, "")
    titles = [line for line in done.out.splitlines() if line.startswith("== ")]
    assert titles == [
        "== Task ==",
        "== The model writes code (attempt 1) ==",
        "== Attempt 1 in the sandbox ==",
        "== The model's decision ==",
        "== The model writes code (attempt 2) ==",
        "== Attempt 2 in the sandbox ==",
        "== The model's answer ==",
    ]
    assert done.out.endswith("== The model's answer ==\nIt is **42**.\n\n")
    assert "\x1b" not in done.out
    assert re.search(
        r"^ZeroDivisionError: .*\nfailed, ZeroDivisionError, exit code 1, [\d.]+ m?s\n\n", done.out, re.MULTILINE
    )
    assert re.search(r"^== Attempt 2 in the sandbox ==\n42\nok, [\d.]+ m?s\n\n", done.out, re.MULTILINE)


def test_terminal_output_has_titles_colours_and_the_whole_answer(tmp_path):
    model = replay(tmp_path, "See <b>this</b>, \x1b]0;title\x07:\n" + code("print('hello')"), "It is **42**.")
    shown = on_terminal("run", "What?", "--model", model)
    assert "\x1b[1;36mThe model says:\x1b[0m" in shown
    assert "\x1b[36m── \x1b[0m\x1b[1;36mAttempt 1 in the sandbox\x1b[0m" in shown
    assert "\x1b[96mprint\x1b[0m(" in shown
    assert "See <b>this</b>, \\x1b]0;title\\x07:" in shown
    assert "\x1b]0" not in shown
    assert "It is **42**." in shown


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[]", "holds no answers"),
        ('[\n"a",\n"b\n]', ":3 is not JSON: Invalid control character at column 3: give"),
        ("[" * 100_000, "answers.json is nested too deep, or has a number that is too long: give"),
        ('["a", {"thought": "b"}]', "answer 2 has no text"),
    ],
    ids=["empty", "not JSON", "deep", "no text"],
)
def test_invalid_recording_is_status_2(tmp_path, content, complaint):
    file = tmp_path / "answers.json"
    file.write_text(content)
    done = run("task", "--model", f"replay:{file}")
    assert (done.status, done.out) == (2, "")
    assert complaint in done.err


def test_empty_answer_is_reported(tmp_path):
    done = run("task", "--model", replay(tmp_path, " \n"))
    assert (done.status, done.out, done.err) == (
        1,
        "== Task ==\ntask\n\n",
        "codeact: the model's answer is empty: try again, or another model\n",
    )


# Status


def test_answer_without_code_is_told(tmp_path):
    done = run("task", "--act", "--model", replay(tmp_path, "Just this."))
    assert (done.status, done.err) == (0, "codeact: the model wrote no code, so none was run\n")


def test_recording_without_its_prefix_is_told(tmp_path):
    file = replay(tmp_path, "Just this.").removeprefix("replay:")
    done = run("task", "--model", file)
    assert done.status == 2
    assert done.err == f"codeact: {file} is a list, as recorded answers are: --model replay:{file} reads them.\n"


@pytest.mark.parametrize("retries", ["0", "1"])
def test_retries_limits_the_repairs(tmp_path, retries):
    again = [decision(True), FAILS] * int(retries)
    done = run("task", "--model", replay(tmp_path, FAILS, *again, "No."), "--budget", f"retries={retries}", "--json")
    assert done.status == 1
    assert kinds(done).count("CodeExecutionEvent") == 1 + int(retries)


def test_cut_off_answer_is_status_1(tmp_path):
    done = run("task", "--model", replay(tmp_path, "```python\nprint("), "--budget", "retries=0")
    assert (done.status, done.err) == (1, "codeact: the model's answer ends inside a block of code\n")
    done = run("task", "--model", replay(tmp_path, code("print(1)"), "```sql\nSELECT"))
    assert (done.status, done.err) == (1, "codeact: the model's answer ends inside a block of code\n")


def test_answer_with_code_that_could_have_run_is_status_1(tmp_path):
    model = replay(tmp_path, code("print(1)"), "I ran\n" + code("print(1)"))
    assert run("task", "--model", model).status == 0
    model = replay(tmp_path, code("print(1)"), "Better:\n" + code("print(2)", language="bash"))
    done = run("task", "--model", model)
    assert (done.status, done.err) == (1, "codeact: the model's answer has bash code in it that was not run\n")
    done = run("task", "--act", "--model", replay(tmp_path, *[code("console.log(1)", language="js")] * 3))
    assert done.status == 1
    assert done.err.endswith("codeact: the model's answer has javascript code in it that was not run\n")


def test_answer_in_another_language_is_named_once_and_status_0(tmp_path):
    model = replay(tmp_path, *[code("SELECT 1;", language="sql")] * 2)
    done = run("task", "--model", model)
    assert (done.status, done.err) == (0, "codeact: the model wrote no code, so none was run\n")
    assert "\nSent back to the model: " in done.out
    assert "- a block labelled sql: only bash, python or sh is run here" in done.out


@pytest.mark.parametrize("options", [(), ("--act",), ("--team",)])
def test_bash_runs(tmp_path, options):
    answers = [code("[[ a ]] && echo $((6 * 7))", language="bash"), "It is 42. TERMINATE"]
    done = run("task", "--model", replay(tmp_path, *answers), *options)
    assert (done.status, done.err) == (0, "")
    assert "\n42\n" in done.out


def test_empty_task_is_status_2(tmp_path):
    done = run(" \n ", "--model", replay(tmp_path, "x"))
    assert (done.status, done.out) == (2, "")
    assert done.err == "codeact: The task is empty: describe what the agent should do.\n"


# The sandbox's options


def test_files_are_kept_with_work_dir_and_listed_without(tmp_path):
    model = replay(tmp_path, code("open('made.txt', 'w').write('x')"), "Done.")
    done = run("task", "--model", model)
    assert (done.status, done.err) == (
        0,
        "codeact: removed with the sandbox: made.txt. --work-dir FOLDER keeps files.\n",
    )
    folder = tmp_path / "work"
    done = run("task", "--model", model, "--work-dir", folder)
    assert (done.status, done.err) == (0, f"codeact: {folder} does not exist: it is created, and begins empty\n")
    assert [path.name for path in folder.iterdir()] == ["made.txt"]


# The team


def test_team_ends_when_the_coder_says_so(tmp_path):
    done = run("What is 6*7?", "--team", "--model", replay(tmp_path, WORKS, "It is 42. TERMINATE"), "--json")
    assert (done.status, done.err) == (0, "")
    said = [(entry["source"], entry["content"]) for entry in done.objects[:-1]]
    assert said == [("user", "What is 6*7?"), ("coder", WORKS), ("executor", "42\n"), ("coder", "It is 42. TERMINATE")]
    assert done.objects[-1]["stop_reason"] == "coder said TERMINATE"


def test_a_team_whose_last_code_failed_is_status_1(tmp_path):
    done = run("task", "--team", "--model", replay(tmp_path, FAILS, "I give up. TERMINATE"))
    assert done.status == 1
    titles = [line for line in done.out.splitlines() if line.startswith("== ")]
    assert titles == ["== Task ==", "== coder ==", "== executor ==", "== coder =="]
    assert done.out.partition("== executor ==\n")[2].startswith("one\nTraceback ")
    assert re.search(r"^exit code 1, [\d.]+ m?s\n\n== coder ==$", done.out, re.MULTILINE)


# A real server


def test_named_model_generates_fails_decides_repairs_and_reflects():
    done, server = served(FAILS, decision(True), WORKS, "It is 42.", arguments=["--model", "gpt-4o", "--json"])
    assert (done.status, done.err, kinds(done)) == (0, "", REPAIRED)
    assert [request["model"] for request in server.requests] == ["gpt-4o"] * 4
    assert [request.get("response_format", {}).get("type") for request in server.requests] == [
        None,
        "json_schema",
        None,
        None,
    ]
    assert server.requests[0]["messages"][-1]["content"] == "What is 6*7?"
    assert "ZeroDivisionError" in str(server.requests[1]["messages"])
    assert done.objects[-2]["models_usage"] == {"prompt_tokens": 7, "completion_tokens": 3}


def test_silent_server_ends_at_the_model_timeout():
    done, _ = served(Reply(silent=True), arguments=["--model", "gpt-4o", "--model-timeout", "0.5"])
    assert (done.status, done.out.count("42")) == (2, 0)
    assert done.err == (
        "codeact: The run failed. The model sent nothing for 0.5 s. --model-timeout SECONDS waits longer.\n"
    )


def test_unreachable_server_is_one_line_with_the_cause():
    done = run("task", "--model", "gpt-4o", "--base-url", "http://127.0.0.1:9/v1", env=KEY)
    assert done.status == 2
    (error,) = done.err.splitlines()
    assert error.startswith("codeact: The run failed. APIConnectionError: Connection error. (")
    assert "--base-url" in error


# Components


def component(folder, **config):
    file = folder / "model.json"
    provider = config.pop("provider", "autogen_ext.models.openai.OpenAIChatCompletionClient")
    file.write_text(json.dumps({"provider": provider, "component_type": "model", "config": config}))
    return file


def test_component_file_is_a_model(tmp_path):
    with OpenAIServer([WORKS, "It is 42."]) as server:
        file = component(tmp_path, model="gpt-4o", base_url=server.base_url, api_key="sk-in-the-file")
        done = run("What is 6*7?", "--model", file, "--json")
    assert (done.status, done.err) == (0, "")
    assert kinds(done) == [*REPAIRED[:3], *REPAIRED[6:]]


def test_component_of_another_class_is_not_created(tmp_path):
    mark = tmp_path / "mark"
    done = run("task", "--model", component(tmp_path, provider="subprocess.Popen", args=["touch", str(mark)]))
    assert (done.status, done.out) == (2, "")
    assert "names subprocess.Popen, which is not a ChatCompletionClient: give the full name of one." in done.err
    assert not mark.exists()


@pytest.mark.parametrize("options", [["--base-url", "http://127.0.0.1:9"], ["--api-key-env", "X"]])
def test_options_of_named_models_are_refused_with_others(tmp_path, options):
    for model in (component(tmp_path, model="gpt-4o"), replay(tmp_path, "x")):
        done = run("task", "--model", model, *options)
        assert (done.status, done.out) == (2, "")
        assert done.err.startswith("codeact: --base-url and --api-key-env go with a model's name")


@pytest.mark.parametrize("model", ["none.json", "replay:none.json"])
def test_missing_file_is_status_2(tmp_path, model):
    done = run("task", "--model", model, cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert done.err == "codeact: none.json can't be read: No such file or directory\n"


def test_the_task_may_come_from_standard_input(tmp_path):
    model = replay(tmp_path, "It is 42.")
    done = codeact(
        "run", "-", "--sandbox", "bubblewrap", "--model", model, "--save", "none", "--json", stdin="What is 6*7?\n"
    )
    assert done.objects[0]["content"] == "What is 6*7?\n"
    done = codeact("run", "-", "--model", model, stdin=" ")
    assert (done.status, done.err) == (2, "codeact: The task is empty: describe what the agent should do.\n")


def test_a_task_that_is_a_file_asks_what_is_meant(tmp_path):
    (tmp_path / "notes.md").write_text("Sum it.")
    done = codeact("run", "notes.md", "--model", replay(tmp_path, "It is 42."), cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert "`codeact exec notes.md` runs the code in it; `codeact run - < notes.md` gives its text" in done.err


@pytest.mark.parametrize("arguments", [["run", "What is it?", "--save", "none"], ["exec", "page.md"]])
def test_quiet_prints_the_answer_or_output_only(tmp_path, arguments):
    (tmp_path / "page.md").write_text(code("print('It is 42.')"))
    model = ["--model", replay(tmp_path, code("print(6 * 7)"), "It is 42.")] if arguments[0] == "run" else []
    done = in_bubblewrap(*arguments, *model, "--quiet", cwd=tmp_path)
    assert (done.status, done.out, done.err) == (0, "It is 42.\n", "")
