"""A. Resources: memory, files, and floods of output, of which all beyond a cap is dropped as it is read."""

import asyncio
import time

import pytest

from autogen_codeact.executors import SandboxFileError
from codeact_sandbox.types.limits import parse_size

from .subject import SMALL, Subject, each_engine

NO_MEMORY = "the kernel killed it because the sandbox's memory limit was reached"
BOMB = """
    heap = []
    while True:
        heap.append(b"x" * 10_000_000)
"""
FILL = """
    import errno, os
    for folder in {folders}:
        written = 0
        try:
            with open(os.path.join(folder, "ballast"), "wb", buffering=0) as file:
                while True:
                    written += file.write(b"x" * 65536)
        except OSError as error:
            print(folder, errno.errorcode[error.errno], written >> 20)
"""
BOMBED = "128m"
"""Memory for bombs: half of what other cases have, because it takes processor time to fill it."""
WORKSPACE_BYTES = parse_size(SMALL.workspace)


# Case 2.
async def test_memory_bomb_is_oom_and_no_timeout(subject: Subject) -> None:
    await subject.start(memory=BOMBED)
    subject.may_fail_without_cgroup()
    result = await subject.run(BOMB, timeout=20)
    assert (result.outcome, result.exit_code) == ("oom", 137), result
    assert result.error is not None
    assert (result.error.type, result.error.message) == ("OutOfMemory", NO_MEMORY)
    assert result.state == ("restored" if subject.session else "kept")


# Case 3.
async def test_memory_bomb_in_a_child_kills_the_child(subject: Subject) -> None:
    await subject.start(memory=BOMBED)
    subject.may_fail_without_cgroup()
    code = """
    import subprocess, sys
    child = subprocess.run([sys.executable, "-c", "heap = []\\nwhile True: heap.append(b'x' * 10_000_000)"])
    print("child", child.returncode)
    """
    result = await subject.run(code, timeout=20)
    assert (result.outcome, result.output, result.state) == ("ok", "child -9\n", "kept"), result
    assert result.notes == ("A process that the code started was killed: the sandbox's memory limit was reached.",)


# Case 4.
async def test_full_folders_say_enospc(subject: Subject) -> None:
    folders = ["/tmp", "/workspace", "/dev/shm"]
    subject.kept = WORKSPACE_BYTES
    await subject.start(memory="512m")
    said = await subject.out(FILL.format(folders=folders), timeout=10)
    # What lies in a folder already, such as the home and the block's own file, takes a page or two.
    assert said.replace(" 15\n", " 16\n") == "/tmp ENOSPC 16\n/workspace ENOSPC 16\n/dev/shm ENOSPC 64\n"


# Case 5.
async def test_no_more_inodes(subject: Subject) -> None:
    await subject.start(files=500)
    code = """
    import errno, os
    for folder in ("/workspace/many", "/tmp/many"):
        os.mkdir(folder)
        made = 0
        try:
            while True:
                open(f"{folder}/{made}", "w").close()
                made += 1
        except OSError as error:
            print(folder, errno.errorcode[error.errno], 400 < made < 500)
    """
    assert await subject.out(code, timeout=20) == "/workspace/many ENOSPC True\n/tmp/many ENOSPC True\n"
    assert await subject.out("echo shell", "sh") == "shell\n"


# Case 6.
@each_engine
async def test_sparse_file_of_a_terabyte_is_refused_by_its_size(subject: Subject) -> None:
    result = await subject.run("import os\nwith open('huge.bin', 'wb') as file: os.truncate(file.fileno(), 1 << 40)")
    assert (result.outcome, result.error.type) == ("error", "FilesNotStored")
    huge = next(item for item in result.artifacts if item.name == "huge.bin")
    assert (huge.size, huge.path) == (1 << 40, None)
    assert huge.note is not None
    assert "1,099,511,627,776 bytes; at most 104,857,600 are copied" in huge.note
    with pytest.raises(SandboxFileError, match="1,099,511,627,776 bytes"):
        await subject.executor.download("huge.bin", subject.work_dir / "copy.bin")
    assert not (subject.work_dir / "copy.bin").exists()


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
