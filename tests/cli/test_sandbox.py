"""Options of the sandbox on the command line: the choice, what they become, and what each kind refuses."""

from pathlib import Path

import pytest

from autogen_codeact.cli.sandbox_choice import SandboxChoice
from tests.cases import case
from tests.cli.support import code, codeact
from tests.sandbox.images import make_wheel
from tests.sandbox.packages.conftest import served

NOWHERE = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
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


def test_options_that_a_sandbox_does_not_have_are_status_2():
    for arguments, complaint in [
        (["--sandbox", "bubblewrap", "--option", "image=python:3"], "image= is not for sandbox='bubblewrap'"),
        (["--option", "image=python:3"], "image= needs Docker. No Docker engine at unix:///nowhere"),
        (["--sandbox", "none"], "'none' is not one of 'auto', 'docker', 'bubblewrap'"),
        (["--sandbox", "chroot"], "'chroot' is not one of 'auto', 'docker', 'bubblewrap'"),
        (["--option", "mode=sesion"], "mode must be"),
    ]:
        with case(arguments, complaint):
            done = codeact("exec", "-", *arguments, stdin=WHERE, env={**NOWHERE, "COLUMNS": "200"})
            assert (done.status, done.out) == (2, "")
            assert complaint in done.err


def test_pip_installs_with_allow_pip(bubblewrap, tmp_path):
    make_wheel(tmp_path, "value = 42\n", needs="")
    blocks = "```sh\npip install -q tinywheel\n```\n```python\nimport tinywheel\nprint(tinywheel.value)\n```\n"
    with served(tmp_path) as url:
        env = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": url}
        done = codeact("exec", "-", "--sandbox", "bubblewrap", "--allow-pip", stdin=blocks, env=env)
    assert done.status == 0, done
    assert "\n42\nok" in done.out


def test_only_allowed_hosts_are_reachable(bubblewrap):
    """The allowed host gives 502, because its name does not resolve; the other one is refused."""
    fetching = """
import urllib.request
for host in ("no-such-name.invalid", "evil.example"):
    try:
        urllib.request.urlopen(f"http://{host}/")
    except OSError as error:
        print(error.code)
"""
    allowed = ["--allow-domain", "api.example.com", "--allow-domain", "*.invalid:80"]
    done = codeact("exec", "-", "--sandbox", "bubblewrap", *allowed, "--json", stdin=code(fetching))
    (result,) = done.objects
    assert result["output"] == "502\n403\n"
    assert [note.split(";")[0] for note in result["notes"]] == [
        "A connection was refused: evil.example:80 is not in allow_domains"
    ]


def test_demo_works_without_docker(bubblewrap, tmp_path):
    done = codeact("demo", cwd=tmp_path, env=NOWHERE)
    assert done.status == 0
    assert bubblewrap_messages(done)[0] == "codeact: no Docker engine answers, so code runs in bubblewrap"
    files = {path.stem: path for path in (tmp_path / "codeact-demo").iterdir()}
    assert files.keys() >= {"demo", "revenue"}
    assert min(files[name].stat().st_size for name in ("demo", "revenue")) > 500


BASE = {"timeout": 60, "work_dir": None, "mode": "session"}


def test_options_become_arguments():
    for choice, expected in [
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
    ]:
        with case(choice, expected):
            assert choice.options() == {**BASE, **expected}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["--option", "memory=512"],
            "memory='512' is 512 bytes, and a sandbox needs 20m to start; did you mean '512m'?",
        ),
        (
            ["--option", "workspace=much"],
            "'much' is not a size: write bytes, or a number with a unit, such as '512m' or '2g'",
        ),
        (["--data", "none.csv"], "data='none.csv': there is no such file or folder"),
        (["--env", "A-B=1"], "Entry 1 of `environment` (--env) is not the name of a variable"),
        (["--secret", "KEY"], "--secret takes NAME@HOST, such as API_KEY@api.example.com."),
        (
            ["--option", "network=nets", "--sandbox", "docker"],
            "the Docker engine refused to start the sandbox: network nets not found",
        ),
        (
            ["--option", "network=on"],
            "network='on' is not a Docker network: give 'none', 'bridge' (which reaches the internet)",
        ),
        (["--package", "six", "--sandbox", "bubblewrap"], "--package is not for sandbox='bubblewrap'"),
        (
            ["--option", 'limits={"memory": "1g"'],
            "limits='{\"memory\": \"1g\"' is not valid JSON: Expecting ',' delimiter",
        ),
        (["--option", "limits=3"], "limits must be Limits(memory='512m', ...), not 3"),
    ],
)
def test_a_wrong_option_is_status_2(docker_engine, tmp_path, arguments, complaint):
    done = codeact("exec", "-", *arguments, stdin=code("print(1)"), cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert complaint in done.err


def test_exec_with_data_variables_and_a_larger_disk(docker_engine, tmp_path):
    (tmp_path / "sales.csv").write_text("42")
    page = code(
        "import os, shutil",
        "print(open('/data/sales.csv').read(), os.environ['FROM_HERE'], os.environ['GIVEN'])",
        "print(shutil.disk_usage('/workspace').total)",
    )
    options = [
        "--data",
        "sales.csv",
        "--env",
        "FROM_HERE",
        "--env",
        "GIVEN=x=y",
        "--option",
        "workspace=300m",
        "--json",
    ]
    done = codeact("exec", "-", *options, stdin=page, cwd=tmp_path, env={"FROM_HERE": "here"})
    assert (done.status, done.err) == (0, "")
    assert done.objects[0]["output"] == f"42 here x=y\n{300 * 1024**2}\n"
