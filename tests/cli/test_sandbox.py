"""Options of the sandbox on the command line: the choice, what they become, and what each kind refuses."""

from pathlib import Path

import pytest

from autogen_codeact.cli.sandbox_choice import SandboxChoice
from tests.cli.support import code, codeact

NOWHERE = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
KINDS = "'auto', 'docker', 'bubblewrap'"
WHERE = code("import os", "print(os.path.isdir('/home'), os.getuid())")


def messages(done):
    """Return the messages, without the one on the Python of the sandbox."""
    return [line for line in done.err.splitlines() if "codeact: the sandbox runs " not in line]


def bubblewrap_messages(done):
    """Return the messages without the one on control groups, which ordinary users get."""
    return [line for line in messages(done) if "control group" not in line]


def test_sandbox_bubblewrap_uses_bubblewrap(bubblewrap, tmp_path):
    done = codeact("exec", "-", "--sandbox", "bubblewrap", "--json", stdin=WHERE, cwd=tmp_path, env=NOWHERE)
    assert (done.status, bubblewrap_messages(done)) == (0, [])
    (result,) = done.objects
    assert (result["output"], result["outcome"]) == ("False 65534\n", "ok")
    assert list(tmp_path.iterdir()) == []


def test_auto_uses_docker_if_an_engine_answers(docker_engine):
    done = codeact("exec", "-", stdin=code("import os", "print(os.path.exists('/.dockerenv'))"))
    assert (done.status, done.err) == (0, "")
    assert "True" in done.out


def test_auto_without_any_sandbox_is_status_2_with_advice(tmp_path):
    making = code("open('made', 'w')")
    done = codeact("exec", "-", stdin=making, cwd=tmp_path, env={**NOWHERE, "PATH": str(tmp_path)})
    assert (done.status, done.out, list(tmp_path.iterdir())) == (2, "", [])
    assert "There is no sandbox on this machine. Docker: No Docker engine at unix:///nowhere" in done.err
    assert "Or bubblewrap: bubblewrap is not installed: apt-get install bubblewrap" in done.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--sandbox", "bubblewrap", "--option", "image=python:3"], "image= is not for sandbox='bubblewrap'"),
        (["--option", "image=python:3"], "image= needs Docker. No Docker engine at unix:///nowhere"),
        (["--sandbox", "none"], f"Invalid value for '--sandbox': 'none' is not one of {KINDS}."),
        (["--sandbox", "chroot"], f"Invalid value for '--sandbox': 'chroot' is not one of {KINDS}."),
        (["--option", "mode=sesion"], "mode must be"),
    ],
)
def test_options_that_a_sandbox_does_not_have_are_status_2(arguments, complaint):
    done = codeact("exec", "-", *arguments, stdin=WHERE, env={**NOWHERE, "COLUMNS": "200"})
    assert (done.status, done.out) == (2, "")
    assert complaint in done.err


def test_demo_works_without_docker(bubblewrap, tmp_path):
    done = codeact("demo", cwd=tmp_path, env=NOWHERE)
    assert done.status == 0
    assert bubblewrap_messages(done)[0] == "codeact: no Docker engine answers, so code runs in bubblewrap"
    files = {path.stem: path for path in (tmp_path / "codeact-demo").iterdir()}
    assert files.keys() >= {"demo", "revenue"}
    assert min(files[name].stat().st_size for name in ("demo", "revenue")) > 500


BASE = {"timeout": 60, "work_dir": None, "mode": "session"}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (SandboxChoice(), {}),
        (SandboxChoice(others=["image=i", "mode=process"]), {"image": "i", "mode": "process"}),
        (
            SandboxChoice(data=(Path("a.csv"),), packages=("polars",), others=("packages=six", "data=b.csv")),
            {"data": ["b.csv", Path("a.csv")], "packages": ["six", "polars"]},
        ),
        (
            SandboxChoice(environment=("KEY", "PLACE=a=b", "EMPTY=")),
            {"environment": {"KEY": "${KEY}", "PLACE": "a=b", "EMPTY": ""}},
        ),
        (
            SandboxChoice(allow_pip=True, allow_domains=["*.invalid:80"], timeout=3),
            {"allow_pip": True, "allow_domains": ["*.invalid:80"], "timeout": 3},
        ),
    ],
    ids=["default", "others", "lists", "environment", "network"],
)
def test_options_become_arguments(choice, expected):
    assert choice.options() == {**BASE, **expected}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--option", "memory=512"],
            "memory='512' is 512 bytes, and a sandbox needs 20m to start; did you mean '512m'?",
        ),
        (["--data", "none.csv"], "data='none.csv': there is no such file or folder"),
        (["--secret", "KEY"], "--secret takes NAME@HOST, such as API_KEY@api.example.com."),
        (
            ["--option", "network=nets", "--sandbox", "docker"],
            "the Docker engine refused to start the sandbox: network nets not found",
        ),
        (
            ["--option", "network=on"],
            "network='on' is not a Docker network: give 'none', 'bridge' (which reaches the internet)",
        ),
        (
            ["--option", 'limits={"memory": "1g"'],
            "limits='{\"memory\": \"1g\"' is not valid JSON: Expecting ',' delimiter",
        ),
    ],
)
def test_a_wrong_option_is_status_2(docker_engine, tmp_path, arguments, complaint):
    done = codeact("exec", "-", *arguments, stdin=code("print(1)"), cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert complaint in done.err
