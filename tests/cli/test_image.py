"""`codeact image build`."""

from contextlib import closing

import pytest

from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.types.options import DEFAULT_IMAGE
from tests.cases import case
from tests.cli.support import codeact
from tests.sandbox.images import make_wheel


def test_build_leaves_an_image_that_is_there_alone_and_prints_its_name(docker_engine):
    done = codeact("image", "build")
    assert (done.status, done.out) == (0, f"{DEFAULT_IMAGE}\n")
    assert done.err == f"codeact: {DEFAULT_IMAGE} exists already, built from the same files\n"


def test_build_with_packages_prints_the_derived_image(docker_engine, tmp_path):
    wheel = make_wheel(tmp_path, "VALUE = 6")
    done = codeact("image", "build", "--package", wheel)
    try:
        assert done.status == 0
        assert done.out.startswith("autogen-codeact/derived:")
        assert done.err.splitlines()[0] == f"codeact: {DEFAULT_IMAGE} exists already, built from the same files"
        assert codeact("image", "build", "--package", wheel).out == done.out
    finally:
        with closing(connect()) as client:
            client.remove_image(done.out.strip())


def test_bad_options_of_build_are_status_2():
    for arguments, words in [
        (
            ["--package", "--index-url=x"],
            "'--index-url=x' is not a package: give a name such as 'sympy' or 'polars>=1'.",
        ),
        (["--package", "missing.whl"], "There is no wheel missing.whl"),
    ]:
        with case(arguments, words):
            done = codeact("image", "build", *arguments)
            assert (done.status, done.out) == (2, "")
            assert words in done.err


@pytest.mark.parametrize("arguments", [["build"], ["build", "--force"]])
def test_without_an_engine_it_is_status_2(arguments):
    done = codeact("image", *arguments, env={"DOCKER_HOST": "tcp://127.0.0.1:9"})
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("codeact: No Docker engine at tcp://127.0.0.1:9: nothing listens there.")
