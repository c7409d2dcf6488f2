"""A. Resources: memory, files, and what lies in memory without being either."""

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
