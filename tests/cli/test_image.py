"""`codeact image build`."""

import pytest

from codeact_sandbox.types.options import DEFAULT_IMAGE
from tests.cases import case
from tests.cli.support import codeact


def test_build_leaves_an_image_that_is_there_alone_and_prints_its_name(docker_engine):
    done = codeact("image", "build")
    assert (done.status, done.out) == (0, f"{DEFAULT_IMAGE}\n")
    assert done.err == f"codeact: {DEFAULT_IMAGE} exists already, built from the same files\n"


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
