"""`codeact image`: build and list."""

import pytest

from autogen_codeact.executors import DEFAULT_IMAGE
from tests.cli.support import codeact


def test_build_leaves_an_image_that_is_there_alone_and_prints_its_name(docker_engine):
    done = codeact("image", "build")
    assert (done.status, done.out) == (0, f"{DEFAULT_IMAGE}\n")
    assert done.err == f"codeact: {DEFAULT_IMAGE} exists already, built from the same files\n"


def test_list_has_one_image_a_line(docker_engine):
    done = codeact("image", "list")
    assert (done.status, done.err) == (0, "")
    rows = {line.split()[0]: line.split() for line in done.out.splitlines()}
    kind, size, unit, date, _, zone = rows[DEFAULT_IMAGE][1:]
    assert (kind, unit, zone) == ("default", "MB", "UTC")
    assert int(size) > 100
    assert date.startswith("20")


@pytest.mark.parametrize("arguments", [["build"], ["build", "--force"], ["list"]])
def test_without_an_engine_it_is_status_2(arguments):
    done = codeact("image", *arguments, env={"DOCKER_HOST": "tcp://127.0.0.1:9"})
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("codeact: No Docker engine at tcp://127.0.0.1:9: nothing listens there.")
