"""`--host` of `doctor`, `clean` and `image`: which engines they are about."""

import json
from collections.abc import Iterator

import pytest

from codeact_sandbox.types.options import DEFAULT_IMAGE
from tests.abuse.engine_proxy import EngineProxy, engine_proxy
from tests.cases import case
from tests.cli.support import codeact
from tests.cli.test_leftovers import Bench, of_the_dead

NOWHERE = {"DOCKER_HOST": "unix:///nowhere"}
GONE = "unix:///nowhere/either"


@pytest.fixture
def proxy(docker_engine: str) -> Iterator[EngineProxy]:
    """The engine, at another address."""
    with engine_proxy() as made:
        yield made


@pytest.fixture
def bench(proxy: EngineProxy) -> Iterator[Bench]:
    made = Bench(proxy)
    yield made
    made.clear()


def test_doctor_checks_each_engine(proxy: EngineProxy) -> None:
    near, far = (json.dumps({"url": url, "name": name}) for url, name in [(proxy.address, "near"), (GONE, "far")])
    done = codeact("doctor", "--json", "--host", near, "--host", far, env=NOWHERE)
    assert done.status == 1
    (report,) = done.objects
    found = [(each["name"], each["status"], each["detail"]) for each in report["checks"]]
    assert [(name, status) for name, status, _ in found if name in ("engine", "image", "sandbox", "block")] == [
        ("engine", "ok"),
        ("image", "ok"),
        ("engine", "lack"),
        ("sandbox", "ok"),
        ("block", "ok"),
    ]
    assert found[0][2].startswith("near: Docker ")
    assert ("engine", "lack", "far: no Docker engine can be used") in found
    (sandbox,) = [detail for name, _, detail in found if name == "sandbox"]
    assert sandbox.startswith("near: docker, started in ")
    (advice,) = [each["advice"] for each in report["checks"] if each["status"] == "lack"]
    assert advice.startswith("No Docker engine at far: there is no such socket.")


def test_clean_removes_containers_of_the_engines_that_are_named(bench: Bench) -> None:
    dead = bench.make(of_the_dead())
    done = codeact("clean", "--host", bench._proxy.address, "--host", GONE, env=NOWHERE)
    assert done.status == 1
    assert done.err.startswith(f"codeact: No Docker engine at {GONE}: there is no such socket.")
    (line,) = [line for line in done.out.splitlines() if dead in line]
    assert line.startswith("removed ")
    assert line.endswith(f"which is dead; on {bench._proxy.address}")
    assert bench.there() == set()


def test_image_is_built_on_the_first_engine_and_given_to_the_others(proxy: EngineProxy) -> None:
    with engine_proxy() as other:
        done = codeact("image", "build", "--host", other.address, "--host", proxy.address, env=NOWHERE)
    assert (done.status, done.out) == (0, f"{DEFAULT_IMAGE}\n")
    done = codeact("image", "build", "--host", proxy.address, "--host", GONE, env=NOWHERE)
    assert (done.status, done.out) == (1, f"{DEFAULT_IMAGE}\n")
    assert done.err.splitlines()[-1].startswith(f"codeact: No Docker engine at {GONE}: there is no such socket.")


def test_invalid_engines_are_an_error() -> None:
    for command in [["doctor"], ["clean"], ["image", "build"]]:
        with case(command):
            done = codeact(*command, "--host", "a:2375")
            assert (done.status, done.out) == (2, "")
            assert "the address of a Docker engine must look like unix:///var/run/docker.sock" in done.err
