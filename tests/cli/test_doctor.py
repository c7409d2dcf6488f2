"""`codeact doctor`: its checks match the machine and the sandbox."""

import json
import platform

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.cli.doctor import engine_versions, limit_checks
from autogen_codeact.cli.probe import PROBE
from autogen_codeact.executors import DockerCommandLineCodeExecutor, Limits
from codeact_sandbox.types.options import DEFAULT_IMAGE
from tests.cli.support import codeact
from tests.sandbox.sandboxes import without_landlock

LIMITS = ["network", "capabilities", "privileges", "user", "root", "memory", "processes", "open files"]
# These checks depend on this machine and on who else uses it.
DEPENDS = ["leftovers", "isolation"]
NOWHERE = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}


def checks(done):
    (report,) = done.objects
    found = {check["name"]: check for check in report["checks"]}
    for name in DEPENDS:
        found.pop(name, None)
    return report["ok"], found


def test_complete_machine_passes_all_checks(docker_engine):
    done = codeact("doctor", "--json")
    assert (done.status, done.err) == (0, "")
    good, found = checks(done)
    assert good
    assert list(found) == ["packages", "engine", "versions", "image", "bubblewrap", "sandbox", *LIMITS, "block"]
    del found["bubblewrap"]  # depends on this machine
    assert {name: check["status"] for name, check in found.items() if check["status"] != "ok"} == {}
    assert f"Docker {docker_engine} at " in found["engine"]["detail"]
    assert "API 1." in found["engine"]["detail"]
    assert "cgroup v" in found["engine"]["detail"]
    assert "runc" in found["engine"]["detail"].partition(", runtimes ")[2].split(", ")
    assert found["versions"]["detail"].startswith(f"Docker {docker_engine}, runc 1.")
    assert found["versions"]["detail"].endswith(f"Linux {platform.release()}")
    assert found["versions"]["advice"].startswith("Published vulnerabilities: https://docs.docker.com/")
    assert found["image"]["detail"].startswith(f"{DEFAULT_IMAGE} (")
    assert found["memory"]["detail"] == f"at most {Limits().memory_bytes:,} bytes"
    assert found["processes"]["detail"] == "at most 256 at once"
    assert found["user"]["detail"] == "uid 65534, gid 65534"


def test_text_output_has_one_line_per_check(docker_engine):
    done = codeact("doctor")
    assert (done.status, done.err) == (0, "")
    every = [line for line in done.out.splitlines() if not line.startswith("    ")]
    lines = [line for line in every if line[5:20].strip() not in [*DEPENDS, "bubblewrap"]]
    assert [line[5:20].strip() for line in every].count("leftovers") == 1
    assert [line[5:20].strip() for line in lines[:-2]] == [
        *["packages", "engine", "versions", "image", "sandbox", *LIMITS, "block"]
    ]
    assert {line[:5] for line in lines[:-2]} == {"ok   "}
    assert lines[-1] == "Everything needed is available."


def test_versions_have_the_patch_level_of_a_distributions_package():
    runc = {"Name": "runc", "Version": "1.1.5+ds1", "Details": {"GitCommit": "1.1.5+ds1-1+deb12u1"}}
    built = {"Name": "runc", "Version": "1.3.3", "Details": {"GitCommit": "v1.3.3-0-g51d5e946"}}
    answer = {"Version": "20.10.24+dfsg1", "KernelVersion": "6.1.0-35-amd64"}
    docker = {"Docker": "20.10.24+dfsg1"}
    linux = {"Linux": "6.1.0-35-amd64"}
    assert engine_versions(answer) == docker | linux
    assert engine_versions(answer | {"Components": [runc]}) == docker | {"runc": "1.1.5+ds1-1+deb12u1"} | linux
    assert engine_versions(answer | {"Components": [built]}) == docker | {"runc": "1.3.3"} | linux


async def test_missing_limits_are_reported(docker_engine):
    loose = DockerCommandLineCodeExecutor(
        user="0:0", network="host", read_only=False, limits=Limits(memory="96m", pids=64, nofile=512)
    )
    async with loose:
        result = await loose.execute_code_blocks([CodeBlock(code=PROBE, language="python")], CancellationToken())
    found = {check.name: check for check in limit_checks(json.loads(result.output), Limits())}
    assert list(found) == [*LIMITS, "isolation"]
    lacking = [name for name, check in found.items() if check.status == "lack"]
    assert lacking == ["network", "user", "root", "memory", "processes", "open files"]
    assert all(found[name].advice for name in lacking)
    assert found["memory"].detail == f"100,663,296 instead of {Limits().memory_bytes:,} bytes"


async def isolation(executor):
    async with executor:
        result = await executor.execute_code_blocks([CodeBlock(code=PROBE, language="python")], CancellationToken())
    return {check.name: check for check in limit_checks(json.loads(result.output), Limits())}["isolation"]


async def test_isolation_of_blocks_is_reported(docker_engine, tmp_path):
    here = await isolation(DockerCommandLineCodeExecutor())
    if here.status == "ok":
        assert here.detail.startswith("blocks of one sandbox are isolated from each other: Landlock ABI ")
    lacking = await isolation(DockerCommandLineCodeExecutor(seccomp=without_landlock(tmp_path)))
    assert (lacking.status, lacking.detail) == (
        "note",
        "blocks of one sandbox are not isolated: Landlock is not available",
    )
    assert "run alone" in lacking.advice


def test_without_any_sandbox_the_other_checks_still_run(tmp_path):
    nothing = {**NOWHERE, "PATH": str(tmp_path)}
    done = codeact("doctor", "--json", env=nothing)
    assert done.status == 1
    good, found = checks(done)
    assert not good
    assert list(found) == ["packages", "engine", "bubblewrap", "versions"]
    ours = "autogen-codeact 0.2.0, codeact-sandbox 0.2.0, image autogen-codeact/sandbox:0.2"
    assert found["packages"] == {"name": "packages", "status": "ok", "detail": ours, "advice": ""}
    assert found["versions"]["detail"] == f"Linux {platform.release()}"
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
    assert list(found) == ["packages", "engine", "bubblewrap", "versions", "sandbox", *LIMITS, "block"]
    assert {name for name, check in found.items() if check["status"] == "lack"} == set()
    assert (found["engine"]["status"], found["bubblewrap"]["status"]) == ("note", "ok")
    assert found["sandbox"]["detail"].startswith("bubblewrap, started in ")
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
    assert list(found) == ["packages", "engine", "versions", "image", "bubblewrap"]
    assert found["image"]["detail"].startswith(detail)
    assert found["image"]["advice"] == advice
