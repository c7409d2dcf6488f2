"""Which executors of tests share their sandbox, and which have one of their own."""

from pathlib import Path

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor, Limits
from tests.cases import case
from tests.sandbox import reused
from tests.sandbox.pool.pooled import left, name_of, what_is_new
from tests.sandbox.sandboxes import out


async def test_two_with_the_same_options_share_a_sandbox_that_is_reset(bubblewrap: None) -> None:
    before, names = left(), []
    for timeout in (20, 30):
        async with reused.executor(BubblewrapCommandLineCodeExecutor, mode="session", timeout=timeout) as executor:
            names.append(name_of(executor))
            assert await out(executor, "print('x' in globals())\nx = 1") == "False\n"
        assert await reused.is_kept(names[-1])
    assert names[0] == names[1]
    assert what_is_new(before) == {}


def test_other_options_are_another_pool() -> None:
    for options in [
        {"mode": "session"},
        {"limits": Limits(pids=50)},
        {"environment": {"A": "1"}},
        {"split_streams": True},
    ]:
        with case(options):
            plain, other = (reused.executor(BubblewrapCommandLineCodeExecutor, **each) for each in ({}, options))
            assert None is not plain.sandbox._pool is not other.sandbox._pool is not None


def test_options_of_a_single_test_are_no_pool(tmp_path: Path) -> None:
    for options in ({"data": [tmp_path]}, {"bind_dir": tmp_path}, {"environment": {"A": "${HOME}"}}):
        assert reused.executor(BubblewrapCommandLineCodeExecutor, **options).sandbox._pool is None
    for options in ({"image": "python:3"}, {"container_name": "own"}, {"network": "bridge"}, {"stop_container": False}):
        assert reused.executor(DockerCommandLineCodeExecutor, **options).sandbox._pool is None
