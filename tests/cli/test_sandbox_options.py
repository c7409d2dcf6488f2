"""Options of the sandbox on the command line: what they become, and what they do in a real one."""

from pathlib import Path

from autogen_codeact.cli.sandbox_choice import SandboxChoice
from codeact_sandbox.types.limits import Limits
from tests.cases import case
from tests.cli.support import code, codeact

BASE = {"timeout": 60, "work_dir": None, "mode": "session", "delete_tmp_files": True}
GIB = 1024**3


def test_options_become_arguments():
    for choice, expected in [
        (SandboxChoice(), {}),
        (SandboxChoice(image="i", network="bridge"), {"image": "i", "network": "bridge"}),
        (
            SandboxChoice(data=(Path("a.csv"),), packages=("polars",), others=("packages=six", "data=b.csv")),
            {"data": ["b.csv", Path("a.csv")], "packages": ["six", "polars"]},
        ),
        (
            SandboxChoice(others=("hosts=tcp://a:1", 'hosts=["tcp://b:1"]')),
            {"hosts": ["tcp://a:1", "tcp://b:1"]},
        ),
        (SandboxChoice(memory="2g"), {"memory": "2g"}),
        (SandboxChoice(disk="2g"), {"memory": max(3 * GIB, Limits().memory_bytes), "workspace": "2g"}),
        (SandboxChoice(disk="2g", memory="5g"), {"memory": "5g", "workspace": "2g"}),
        (
            SandboxChoice(environment=("KEY", "PLACE=a=b", "EMPTY=")),
            {"environment": {"KEY": "${KEY}", "PLACE": "a=b", "EMPTY": ""}},
        ),
    ]:
        with case(choice, expected):
            assert choice.options() == {**BASE, **expected}


def test_a_wrong_option_is_status_2(docker_engine, tmp_path_factory):
    for arguments, complaint in [
        (["--memory", "512"], "memory='512' is 512 bytes, and a sandbox needs 20m to start; did you mean '512m'?"),
        (["--disk", "much"], "'much' is not a size: write bytes, or a number with a unit, such as '512m' or '2g'"),
        (["--data", "none.csv"], "data='none.csv': there is no such file or folder"),
        (["--env", "A-B=1"], "Entry 1 of `environment` is not the name of a variable"),
        (
            ["--network", "on"],
            "network='on' is not a Docker network: give 'none', 'bridge' (which reaches the internet)",
        ),
        (["--package", "six", "--sandbox", "bubblewrap"], "packages= is not for sandbox='bubblewrap'"),
        (
            ["--option", "hosts=tcp://a:1", "--option", "hosts=tcp://a:1"],
            "two engines of hosts have the name 'tcp://a:1': each needs its own",
        ),
        (
            ["--option", "hosts=a:2375"],
            "the address of a Docker engine must look like unix:///var/run/docker.sock or tcp://host:2376",
        ),
        (
            ["--option", "hosts=tcp://a:1", "--option", "docker_host=tcp://b:1"],
            "docker_host= is one engine and hosts= are several",
        ),
        (["--option", "hosts=tcp://a:1", "--sandbox", "bubblewrap"], "hosts= is not for sandbox='bubblewrap'"),
        (
            ["--option", 'limits={"memory": "1g"'],
            "limits='{\"memory\": \"1g\"' is not valid JSON: Expecting ',' delimiter",
        ),
        (["--option", "limits=3"], "limits must be Limits(memory='512m', ...), not 3"),
    ]:
        with case(arguments, complaint):
            tmp_path = tmp_path_factory.mktemp("case")
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
    options = ["--data", "sales.csv", "--env", "FROM_HERE", "--env", "GIVEN=x=y", "--disk", "300m", "--json"]
    done = codeact("exec", "-", *options, stdin=page, cwd=tmp_path, env={"FROM_HERE": "here"})
    assert (done.status, done.err) == (0, "")
    assert done.objects[0]["output"] == f"42 here x=y\n{300 * 1024**2}\n"
