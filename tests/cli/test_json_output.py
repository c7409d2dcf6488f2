"""What `codeact run --json` prints: every line fits the schema in docs/, and the last one is a result or an error."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.cli.support import code, codeact, replay

SCHEMA = Path(__file__).parents[2] / "docs" / "json-output.schema.json"
IMAGE = b"\x89PNG\r\n\x1a\n of the tests"
SHOWS = code(
    "class Image:",
    "    def __init__(self, data): self.data = data",
    "    def _repr_png_(self): return self.data",
    f"display(Image({IMAGE!r}))",
    "display({'text/html': '<b>1</b>', 'application/json': {'a': [1]}}, raw=True)",
    "open('a.txt', 'w').write('x')",
)


@pytest.fixture(scope="module")
def schema():
    """Return a validator of the schema in the docs."""
    return Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def check(schema, done):
    """Assert that each line fits, and that only the last one is an end; return it."""
    for each in done.objects:
        schema.validate(each)
    ends = [each["type"] in ("TaskResult", "error") for each in done.objects]
    assert ends == [False] * (len(ends) - 1) + [True]
    return done.objects[-1]


def run(folder, *options, answers=("It is 42.",), **more):
    env = {"XDG_STATE_HOME": str(folder), **more.pop("env", {})}
    arguments = ["--model", replay(folder, *answers), "--json", "--sandbox", "bubblewrap", *options]
    return codeact("run", "Show.", *arguments, env=env, cwd=folder, **more)


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("options", [["--act"], ["--act", "--save", "none", "--work-dir", "w"]], ids=str)
def test_displays_and_artifacts_are_named(schema, tmp_path, options):
    done = run(tmp_path, *options, answers=(SHOWS, code("final_answer('Shown.')")))
    end = check(schema, done)
    assert done.status == 0
    assert (end["outcome"], end["run"] is None) == ("completed", "none" in options)
    message = next(each for each in done.objects if each["type"] == "CodeExecutionEvent")
    (file,) = (each for each in message["artifacts"] if each["name"] == "a.txt")
    assert file["size"] == 1
    if "--work-dir" in options:
        assert Path(file["path"]).read_text() == "x"
    else:
        assert file["path"] is None
    assert [each["types"] for each in message["displays"]] == [
        ["text/plain", "image/png"],
        ["text/html", "application/json"],
    ]


@pytest.mark.usefixtures("bubblewrap")
def test_the_executor_of_a_team_has_them_too(schema, tmp_path):
    done = run(tmp_path, "--team", answers=(code("open('a.txt', 'w').write('x')"), "It is done. TERMINATE"))
    check(schema, done)
    (message,) = (each for each in done.objects if "artifacts" in each)
    assert (message["type"], message["source"]) == ("TextMessage", "executor")
    assert [each["name"] for each in message["artifacts"]] == ["a.txt"]


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize(
    ("options", "env", "kind", "words"),
    [
        (["--timeout", "x"], {}, "BadParameter", "Invalid value for '--timeout': "),
        (["--none"], {}, "NoSuchOption", "No such option: --none"),
        (["--team", "--act"], {}, "CommandError", "--act and --team can't be combined: choose one."),
        (["--option", "memory=x"], {}, "CommandError", "'x' is not a size"),
        (["--model", "gpt-4o"], {}, "CommandError", "There is no key for gpt-4o"),
        (
            ["--sandbox", "docker"],
            {"DOCKER_HOST": "unix:///nowhere/docker.sock"},
            "SandboxUnavailable",
            "No Docker engine at unix:///nowhere/docker.sock",
        ),
    ],
    ids=["value", "option", "combination", "size", "key", "sandbox"],
)
def test_what_fails_before_the_run_is_an_error_object(schema, tmp_path, options, env, kind, words):
    done = run(tmp_path, *options, env=env)
    assert done.status == 2
    end = check(schema, done)
    assert (end["outcome"], end["error"]["class"], end["error"]["advice"]) == ("failed", kind, None)
    assert words in end["error"]["message"]


@pytest.mark.usefixtures("bubblewrap")
def test_an_error_of_the_model_names_the_run_and_how_to_continue_it(schema, tmp_path):
    done = run(tmp_path, "--save", "run", answers=(code("print(1)"),))
    assert done.status == 2
    end = check(schema, done)
    assert end == {
        "type": "error",
        "outcome": "failed",
        "error": {
            "class": "RecordingEnded",
            "message": "The run failed. RecordingEnded: the recording has no more answers, and one more was requested",
            "advice": "`codeact resume run` continues the run",
        },
        "run": str(tmp_path / "run"),
    }
    again = codeact("resume", "run", "--json", cwd=tmp_path)
    assert (again.status, check(schema, again)["error"]["class"]) == (2, "ValueError")
    none = codeact("resume", "none/run", "--json", cwd=tmp_path)
    assert (none.status, check(schema, none)["error"]["class"]) == (2, "RunFolderError")
