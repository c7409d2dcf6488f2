"""Commands and jobs beside the blocks, on both backends and in both modes."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from codeact_sandbox import AsyncSandbox, SandboxFileError, SandboxTimeout, Unsupported
from codeact_sandbox.commands import Job
from tests.cases import case

KINDS = [("docker", "session"), ("bubblewrap", "process")]


@pytest_asyncio.fixture(params=KINDS, ids="-".join, scope="module", loop_scope="module")
async def box(request: pytest.FixtureRequest) -> AsyncIterator[AsyncSandbox]:
    backend, mode = request.param
    request.getfixturevalue("sandbox_image" if backend == "docker" else backend)
    async with AsyncSandbox(backend, mode=mode, timeout=30) as started:
        yield started


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_command_has_its_streams_its_input_and_its_exit_code(box: AsyncSandbox) -> None:
    for command, options, expected in (
        (["printf", "%s|", "a b", "$HOME", ""], {}, (0, "a b|$HOME||", "")),
        ("printf out; printf err >&2; exit 7", {}, (7, "out", "err")),
        ("kill -TERM $$", {}, (143, "", "")),
        (["nothing-of-this-name"], {}, (127, "", "nothing-of-this-name: not found\n")),
        (["/etc/passwd"], {}, (126, "", "/etc/passwd: Permission denied\n")),
        ("read line || printf end", {}, (0, "end", "")),
        (
            "cat; pwd; printf $GIVEN",
            {"stdin": "in\n", "cwd": "/tmp", "env": {"GIVEN": "set"}},
            (0, "in\n/tmp\nset", ""),
        ),
        (["wc", "-c"], {"stdin": iter([b"x" * 1_000_000] * 3)}, (0, "3000000\n", "")),
        (["true"], {"stdin": iter([b"x" * 1_000_000] * 3)}, (0, "", "")),
    ):
        with case(command):
            done = await box.exec(command, **options)  # type: ignore[arg-type]
            assert (done.exit_code, done.stdout, done.stderr, done.timed_out) == (*expected, False)


async def test_what_is_invalid_is_an_error_before_anything_runs(box: AsyncSandbox) -> None:
    for error, command, options in (
        (Unsupported, ["true"], {"user": "root"}),
        (ValueError, [], {}),
        (ValueError, "true\0", {}),
        (ValueError, ["true"], {"timeout": 0}),
        (ValueError, ["true"], {"env": {"A=B": "c"}}),
        (SandboxFileError, ["true"], {"cwd": "/nowhere"}),
    ):
        with case(command, options), pytest.raises(error):
            await box.exec(command, **options)  # type: ignore[arg-type]


async def test_a_command_ends_at_its_timeout_and_when_its_task_is_cancelled(box: AsyncSandbox) -> None:
    began = time.monotonic()
    done = await box.exec("echo begun; sleep 100 & sleep 100", timeout=0.5)
    assert (done.exit_code, done.timed_out, done.stdout) == (124, True, "begun\n")
    task = asyncio.ensure_future(box.exec("echo $$ > pid; exec sleep 100"))
    await box.exec("until test -s pid; do sleep 0.02; done")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await box.exec('kill -0 "$(cat pid)"')).exit_code == 1
    assert time.monotonic() - began < 20


async def test_output_is_streamed_and_what_does_not_fit_is_counted(box: AsyncSandbox) -> None:
    received = {"stdout": b"", "stderr": b""}

    def take(stream: str, data: bytes) -> None:
        received[stream] += data

    done = await box.exec("seq 1000000; echo end >&2", on_output=take)
    assert received["stdout"] == b"".join(b"%d\n" % number for number in range(1, 1_000_001))
    assert (received["stderr"], done.stderr, done.stderr_dropped) == (b"end\n", "end\n", 0)
    assert done.stdout_dropped == len(received["stdout"]) - len(done.stdout_bytes) > 0
    assert done.stdout.startswith("1\n2\n")
    assert done.stdout.endswith("\n999999\n1000000\n")


async def test_commands_and_blocks_run_at_the_same_time_and_share_files(box: AsyncSandbox) -> None:
    block = asyncio.ensure_future(
        box.run("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint(open('go').read())")
    )
    done = await box.exec("sleep 0.1; printf now > part && mv part go")
    assert (done.exit_code, (await block).output) == (0, "now\n")
    assert (box.work_dir / "go").read_text() == "now"


async def until_it_has_written(job: Job) -> None:
    while not (await job.output()).stdout:  # noqa: ASYNC110 - there is no event
        await asyncio.sleep(0.02)


async def test_a_job_outlives_blocks_and_ends_when_it_is_told(box: AsyncSandbox) -> None:
    job = await box.start(["python3", "-uc", "for line in open(0): print(line.upper(), end='')"], stdin=True)
    assert job in box.jobs
    await job.write("one\n")
    await until_it_has_written(job)
    assert (await box.run("import time\ntime.sleep(9)", timeout=0.3)).outcome == "timeout"
    with pytest.raises(SandboxTimeout, match=r"still runs after 0\.1 s"):
        await job.wait(0.1)
    await job.write(b"two\n")
    await job.close_stdin()
    done = await job.wait()
    assert (job.exit_code, done.stdout, (await job.output()).stdout) == (0, "ONE\nTWO\n", "ONE\nTWO\n")
    ended = [await box.start("trap 'exit 3' TERM; while :; do sleep 0.05; done"), await box.start(["sleep", "100"])]
    await asyncio.sleep(0.3)
    await ended[0].signal(signal.SIGTERM)
    await ended[1].kill()
    assert [(await each.wait(10)).exit_code for each in ended] == [3, 137]
    with pytest.raises(SandboxFileError):
        await job.write(b"more")
