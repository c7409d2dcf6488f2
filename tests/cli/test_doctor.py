"""`codeact doctor`: its checks match the machine and the sandbox."""

import json

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.cli.doctor import PROBE, limit_checks
from autogen_codeact.executors import DockerCommandLineCodeExecutor, Limits
from codeact_sandbox.types.options import DEFAULT_IMAGE
from tests.cli.support import codeact

LIMITS = ["network", "privileges", "limits"]
NOWHERE = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}


def checks(done):
    (report,) = done.objects
    found = {check["name"]: check for check in report["checks"]}
    found.pop("leftovers", None)  # depend on who else uses this machine
    return report["ok"], found


def test_complete_machine_passes_all_checks(docker_engine):
    done = codeact("doctor", "--json")
    assert (done.status, done.err) == (0, "")
    good, found = checks(done)
    assert good
    assert list(found) == ["engine", "image", "bubblewrap", "sandbox", *LIMITS]
    del found["bubblewrap"]  # depends on this machine
    assert {name: check["status"] for name, check in found.items() if check["status"] != "ok"} == {}
    assert f"Docker {docker_engine}, Linux " in found["engine"]["detail"]
    assert found["image"]["detail"].startswith(f"{DEFAULT_IMAGE} (")
    assert found["limits"]["detail"] == f"at most {Limits().memory_bytes:,} bytes and 256 processes"
    assert found["privileges"]["detail"].startswith("uid 65534, no capabilities, no_new_privs, seccomp mode 2")


async def test_missing_limits_are_reported(docker_engine):
    loose = DockerCommandLineCodeExecutor(user="0:0", network="host", limits=Limits(memory="96m", pids=64))
    async with loose:
        result = await loose.execute_code_blocks([CodeBlock(code=PROBE, language="python")], CancellationToken())
    found = {check.name: check for check in limit_checks(json.loads(result.output), Limits())}
    assert list(found) == LIMITS
    assert {check.status for check in found.values()} == {"lack"}
    assert all(check.advice for check in found.values())
    assert "root in the sandbox" in found["privileges"].detail
    assert found["limits"].detail == (f"not {Limits().memory_bytes:,} bytes but 100663296, not 256 processes but 64")


def test_without_any_sandbox_the_other_checks_still_run(tmp_path):
    nothing = {**NOWHERE, "PATH": str(tmp_path)}
    done = codeact("doctor", "--json", env=nothing)
    assert done.status == 1
    good, found = checks(done)
    assert not good
    assert list(found) == ["engine", "bubblewrap"]
    assert (found["engine"]["status"], found["bubblewrap"]["status"]) == ("lack", "note")
    assert found["bubblewrap"]["advice"].startswith("bubblewrap is not installed: apt-get install bubblewrap")
    assert found["engine"]["advice"].startswith("No Docker engine at unix:///nowhere/docker.sock")
    shown = codeact("doctor", env=nothing)
    assert shown.status == 1
    assert shown.out.endswith("Something is missing: see LACK above.\n")


def test_without_an_engine_bubblewrap_is_enough(bubblewrap):
    done = codeact("doctor", "--json", env=NOWHERE)
    good, found = checks(done)
    assert (done.status, good) == (0, True)
    assert list(found) == ["engine", "bubblewrap", "sandbox", *LIMITS]
    assert {name for name, check in found.items() if check["status"] == "lack"} == set()
    assert (found["engine"]["status"], found["bubblewrap"]["status"]) == ("note", "ok")
    assert found["sandbox"]["detail"].startswith("bubblewrap, Python ")
    assert found["network"]["detail"] == "loopback only, no connection to the outside"


@pytest.mark.parametrize(
    ("image", "detail", "advice"),
    [
        ("nosuch-image:7", "nosuch-image:7 is missing", "docker pull nosuch-image:7"),
        ("No Name", "'No Name' is not the name of an image", "Give the name of an image with --image."),
    ],
)
def test_a_missing_image_is_not_pulled(docker_engine, image, detail, advice):
    done = codeact("doctor", "--json", "--image", image)
    assert done.status == 1
    _, found = checks(done)
    assert list(found) == ["engine", "image", "bubblewrap"]
    assert found["image"]["detail"].startswith(detail)
    assert found["image"]["advice"] == advice
