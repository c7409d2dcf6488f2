"""A. Resources: floods of output. 10 GB would show no more than these sizes: what is beyond the cap is dropped as it is read."""

import asyncio
import time

from .subject import SMALL, Subject

MILLION = 1_000_000
CAP = int(SMALL.output)
WRITERS = {
    "print": "import sys\nfor _ in range({count}): print('x' * 999_999, file=sys.{stream})",
    "raw": "import os\nfor _ in range({count}): assert os.write({fd}, b'x' * 1_000_000) == 1_000_000",
    "subprocess": "import subprocess; done = subprocess.run('head -c {count}000000 /dev/zero >&{fd}', shell=True, check=True)",
}


async def flood(subject: Subject, how: str, stream: str, count: int) -> None:
    """Write so many million bytes, and see what is kept of them."""
    code = WRITERS[how].format(stream=stream, fd={"stdout": 1, "stderr": 2}[stream], count=count)
    result = await subject.run(code, timeout=30)
    assert (result.outcome, result.exit_code, result.state) == ("ok", 0, "kept"), result.error
    written = count * MILLION
    assert result.truncated == written - CAP
    assert CAP <= len(result.output) < CAP + 100
    assert f"[... {result.truncated:,} bytes dropped ...]" in result.output


# Cases 7, 8.
async def test_flood_of_print_is_capped(subject: Subject) -> None:
    for stream in ("stdout", "stderr"):
        await flood(subject, "print", stream, 40)


# Case 9.
async def test_one_line_of_100_mb(subject: Subject) -> None:
    await subject.start(memory="512m")
    result = await subject.run("print('x' * 100_000_000)", timeout=30)
    assert (result.outcome, result.truncated, result.state) == ("ok", 100 * MILLION + 1 - CAP, "kept")
    assert CAP <= len(result.output) < CAP + 100


# Case 10.
async def test_flood_past_python_s_streams_has_the_same_cap(subject):
    # Each writer sends to one of the streams more than a case may take of this process's memory.
    for how, stream, count in (
        ("raw", "stdout", 40),
        ("raw", "stderr", 4),
        ("subprocess", "stdout", 4),
        ("subprocess", "stderr", 40),
    ):
        await flood(subject, how, stream, count)


# Case 10.
async def test_endless_flood_ends_at_the_deadline(subject: Subject) -> None:
    for language, code in (("python", "import os\nwhile True: os.write(1, b'y' * 65536)"), ("sh", "yes")):
        result = await subject.run(code, language, timeout=1.5)
        assert (result.outcome, result.exit_code) == ("timeout", 124)
        assert result.truncated > 0
        assert CAP <= len(result.output) < CAP + 100


# Case 10.
async def test_flood_of_a_daemon_is_not_in_the_next_block(subject: Subject) -> None:
    await subject.out("import subprocess; p = subprocess.Popen(['yes', 'late'], stderr=-3)")
    for _ in range(3):
        result = await subject.run("import time; time.sleep(0.1); print('mine')")
        assert (result.outcome, result.output, result.truncated) == ("ok", "mine\n", 0)


# Case 10.
async def test_flood_while_the_host_does_not_listen(subject: Subject) -> None:
    """The host's event loop is held up; the sandbox must neither fill its memory nor lose the count."""
    subject.own_stall_s = 1.0
    await subject.start()
    running = asyncio.ensure_future(subject.run(WRITERS["print"].format(stream="stdout", count=40), timeout=20))
    await asyncio.sleep(0.05)
    time.sleep(1)  # noqa: ASYNC251 - this is the case
    result = await running
    assert (result.outcome, result.truncated) == ("ok", 40 * MILLION - CAP)
