"""A. Resources: memory, files, and what lies in memory without being either."""

import textwrap

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


MEMFD = "import os\nfd = os.memfd_create('bomb')\nwhile True: os.write(fd, b'x' * 1_000_000)"
MANY = """
    import os
    for _ in range(20):
        if os.fork() == 0:
            break
    heap = []
    while True:
        heap.append(b"x" * 1_000_000)
"""


# Case 2.
async def test_memory_bombs_of_other_kinds(subject: Subject) -> None:
    """Files in memory, many processes, and a program that a shell has started."""
    await subject.start(memory=BOMBED)
    subject.may_fail_without_cgroup()
    for code in (MEMFD, MANY):
        result = await subject.run(code, timeout=50)
        assert (result.outcome, result.exit_code) == ("oom", 137), result
    result = await subject.run("tail /dev/zero", "sh", timeout=50)
    assert (result.outcome, result.exit_code, result.state) == ("oom", 137, "kept"), result


SYSTEM_V_BOMBS = {
    "shared memory": """
    libc.shmat.restype = ctypes.c_void_p
    while True:
        at = libc.shmat(libc.shmget(0, 20_000_000, 0o1600), None, 0)
        ctypes.memset(at, 1, 20_000_000)
    """,
    "queues": """
    message = ctypes.create_string_buffer((1).to_bytes(8, "little") + bytes(8000))
    while True:
        queue = libc.msgget(0, 0o1600)
        for _ in range(2): libc.msgsnd(queue, message, 8000, 0o4000)
    """,
    "semaphores": "while True: libc.semget(0, 1000, 0o1600)",
}


# Case 2.
async def test_memory_bombs_that_outlive_their_process(subject: Subject) -> None:
    """Nobody's death frees what they hold: it would be full for good, and the supervisor the next to be killed."""
    await subject.start(memory=BOMBED)
    subject.may_fail_without_cgroup()
    for name, code in SYSTEM_V_BOMBS.items():
        head = "import ctypes\nlibc = ctypes.CDLL(None)\n"
        result = await subject.run(head + textwrap.dedent(code).strip(), timeout=50)
        assert (result.outcome, result.exit_code) == ("oom", 137), (name, result)
        removed = "To make room, System V queues and semaphores were removed, and shared memory that no process used."
        assert removed in result.notes
        assert await subject.out("room = b'x' * 30_000_000; del room; print('room')", timeout=40) == "room\n"


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


# Case 4.
async def test_full_workspace_still_runs_code(subject: Subject) -> None:
    """In process mode each block has a file; without room for it the code runs from memory, so that it can make room."""
    subject.kept = WORKSPACE_BYTES
    await subject.start(memory="512m")
    await subject.out(FILL.format(folders=["/workspace", "/tmp"]), timeout=10)
    result = await subject.run("import sys\nprint('runs')\n1 / 0  # the line")
    assert (result.outcome, result.exit_code) == ("error", 1)
    assert "1 / 0  # the line" in result.output
    assert result.error is not None
    assert (result.error.type, result.error.line) == ("ZeroDivisionError", 3)
    named = await subject.run("# filename: deep/in/named.py\nprint('named')")
    assert (named.outcome, named.output) == ("ok", "named\n")
    note = "There was no room in the workspace to save the code as deep/in/named.py; it was run from memory."
    assert named.notes == (note,)
    shell = await subject.run("# filename: named.sh\necho shell; rm /workspace/ballast", "bash")
    assert (shell.outcome, shell.output) == ("ok", "shell\n")
    assert shell.notes == ("There was no room in the workspace to save the code as named.sh; it was run from memory.",)
    again = await subject.run("# filename: deep/in/named.py\nprint(open('deep/in/named.py').read(3))")
    assert (again.output, again.notes) == ("# f\n", ())


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


# Case 5.
async def test_folders_in_folders_without_end(subject: Subject) -> None:
    await subject.start(files=500)
    code = """
    import os
    made = 0
    try:
        while True:
            os.mkdir("d")
            os.chdir("d")
            made += 1
            if made == 20:
                open("twenty.txt", "w").close()
    except OSError:
        print(made > 400)
    os.chdir("/workspace")
    """
    result = await subject.run(code, timeout=20)
    assert (result.outcome, result.output) == ("ok", "True\n")
    assert [item.name for item in result.artifacts if item.name.endswith("twenty.txt")] == ["d/" * 20 + "twenty.txt"]
    assert len(result.notes) == 1
    assert result.notes[0].startswith("There are too many files in the workspace, or folders in folders")


# Case 6.
@each_engine
async def test_sparse_file_of_a_terabyte_is_refused_by_its_size(subject: Subject) -> None:
    result = await subject.run("import os\nwith open('huge.bin', 'wb') as file: os.truncate(file.fileno(), 1 << 40)")
    assert result.outcome == "ok"
    huge = next(item for item in result.artifacts if item.name == "huge.bin")
    assert (huge.size, huge.path) == (1 << 40, None)
    assert huge.note is not None
    assert "1,099,511,627,776 bytes; at most 104,857,600 are copied" in huge.note
    with pytest.raises(SandboxFileError, match="1,099,511,627,776 bytes"):
        await subject.executor.download("huge.bin", subject.work_dir / "copy.bin")
    assert not (subject.work_dir / "copy.bin").exists()
