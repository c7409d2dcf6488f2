"""A. Resources: memory, files, and what lies in memory without being either."""

import asyncio
import textwrap

import pytest

from autogen_codeact.executors import Limits, SandboxFileError
from codeact_sandbox.types.limits import parse_size

from .oracles import MIB
from .subject import SMALL, Subject, each_engine, in_process_mode

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
FILL_WORKSPACE = FILL.format(folders=["/workspace"])


async def test_02_memory_bomb_is_oom_and_no_timeout(subject: Subject) -> None:
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


async def test_02_memory_bombs_of_other_kinds(subject: Subject) -> None:
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


async def test_02_memory_bombs_that_outlive_their_process(subject: Subject) -> None:
    """Nobody's death frees what they hold: it would be full for good, and the supervisor the next to be killed."""
    await subject.start(memory=BOMBED)
    subject.may_fail_without_cgroup()
    for name, code in SYSTEM_V_BOMBS.items():
        head = "import ctypes\nlibc = ctypes.CDLL(None)\n"
        result = await subject.run(head + textwrap.dedent(code).strip(), timeout=50)
        assert (result.outcome, result.exit_code) == ("oom", 137), (name, result)
        removed = "To make room, System V queues and semaphores were removed, and shared memory that no process used."
        assert (removed in result.notes) is subject.session
        assert await subject.out("room = b'x' * 30_000_000; del room; print('room')", timeout=40) == "room\n"


async def test_03_memory_bomb_in_a_child_kills_the_child(subject: Subject) -> None:
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


async def test_04_full_folders_say_enospc(subject: Subject) -> None:
    folders = ["/tmp", "/workspace", "/dev/shm"]
    subject.kept = WORKSPACE_BYTES
    await subject.start(memory="512m")
    said = await subject.out(FILL.format(folders=folders), timeout=10)
    # What lies in a folder already, such as the home and the block's own file, takes a page or two.
    assert said.replace(" 15\n", " 16\n") == "/tmp ENOSPC 16\n/workspace ENOSPC 16\n/dev/shm ENOSPC 64\n"


async def test_04_full_folders_leave_memory_for_code_where_there_is_little(subject: Subject) -> None:
    """Files count as memory: by default the folders together take three quarters of it at most."""
    subject.kept = 30 * MIB
    await subject.start({"limits": Limits(memory="120m")})
    said = await subject.out(FILL.format(folders=["/tmp", "/workspace", "/dev/shm"]), timeout=10)
    assert said.replace(" 29\n", " 30\n") == "/tmp ENOSPC 30\n/workspace ENOSPC 30\n/dev/shm ENOSPC 30\n"
    assert await subject.out("import os; os.remove('/tmp/ballast'); print(len(b'x' * 12_000_000))") == "12000000\n"


async def test_04_full_workspace_still_runs_code(subject: Subject) -> None:
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


async def test_04_full_workspace_and_what_the_host_wants_to_put_there(subject: Subject) -> None:
    """A new file of the host is left out, which is said, and comes when there is room; an upload is refused."""
    subject.kept = WORKSPACE_BYTES
    await subject.start(memory="512m")
    await subject.out(FILL_WORKSPACE, timeout=10)
    (subject.work_dir / "new.txt").write_bytes(b"n" * 100_000)
    result = await subject.run("import os; print(os.path.exists('/workspace/new.txt'))")
    assert (result.outcome, result.output) == ("ok", "False\n")
    missing = (
        "Not sent to the sandbox: new.txt could not be written there (No space left on device; "
        "limits=Limits(workspace=..., files=...) makes room)."
    )
    assert missing in result.notes
    with pytest.raises(SandboxFileError, match="No space left on device"):
        await subject.executor.upload(subject.work_dir / "new.txt", "target.bin")
    look = "import os; print([name for name in os.listdir('/workspace') if name == 'target.bin' or 'part' in name])"
    assert await subject.out(look) == "[]\n"
    await subject.run("import os; os.remove('/workspace/ballast'); os.path.exists('/workspace/new.txt')")
    result = await subject.run("import os; print(os.path.getsize('/workspace/new.txt'))")
    assert (result.outcome, result.output, result.notes) == ("ok", "100000\n", ())


async def test_05_no_more_inodes(subject: Subject) -> None:
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


@in_process_mode
async def test_05_more_folders_than_anybody_looks_through(subject: Subject) -> None:
    """60,000 entries are looked at, one second long at the most; 200,000 would show no more."""
    await subject.start(files=70_000, memory="512m", workspace="64m")
    code = """
    import os
    for number in range(62_000):
        os.mkdir(f"folder-{number:06}")
    open("last.txt", "w").close()
    """
    result = await subject.run(code, timeout=30)
    assert (result.outcome, result.state) == ("ok", "kept")
    assert len(result.notes) == 1
    assert result.notes[0].startswith("There are too many files in the workspace, or folders in folders")
    assert (await subject.executor.list_files()) is not None


async def test_05_folders_in_folders_without_end(subject: Subject) -> None:
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


@each_engine
async def test_06_sparse_file_of_a_terabyte_is_refused_by_its_size(subject: Subject) -> None:
    result = await subject.run("import os\nwith open('huge.bin', 'wb') as file: os.truncate(file.fileno(), 1 << 40)")
    assert result.outcome == "ok"
    huge = next(item for item in result.artifacts if item.name == "huge.bin")
    assert (huge.size, huge.path) == (1 << 40, None)
    assert huge.note is not None
    assert "1,099,511,627,776 bytes; at most 104,857,600 are copied" in huge.note
    with pytest.raises(SandboxFileError, match="1,099,511,627,776 bytes"):
        await subject.executor.download("huge.bin", subject.work_dir / "copy.bin")
    assert not (subject.work_dir / "copy.bin").exists()


LEAVE_IPC = """
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    memory = libc.shmget(0, 1_000_000, 0o1600)
    semaphores = libc.semget(0, 3, 0o1600)
    queue = libc.msgget(0, 0o1600)
    named = libc.mq_open(b"/left", 0o102, 0o600, None)
    print(memory >= 0, semaphores >= 0, queue >= 0, named >= 0)
"""
COUNT_IPC = """
    import ctypes, os
    print([len(open(f"/proc/sysvipc/{kind}").readlines()) - 1 for kind in ("shm", "sem", "msg")], os.listdir("/dev/mqueue"))
"""


async def test_04_shared_memory_semaphores_and_queues_go_with_their_block(subject: Subject) -> None:
    """They are no files: in process mode nothing of a block's outlives it, a session keeps them."""
    assert await subject.out(LEAVE_IPC) == "True True True True\n"
    left = "[1, 1, 1] ['left']\n" if subject.session else "[0, 0, 0] []\n"
    assert await subject.out(COUNT_IPC) == left


@in_process_mode
async def test_04_shared_memory_of_a_block_that_still_runs_stays(subject: Subject) -> None:
    await subject.start()
    slow = LEAVE_IPC + "    import time; time.sleep(1.5)\n" + COUNT_IPC.replace("import ctypes, os", "import os")
    running = asyncio.ensure_future(subject.run(slow))
    await asyncio.sleep(0.5)
    assert await subject.out("print('beside it')") == "beside it\n"
    assert (await running).output == "True True True True\n[1, 1, 1] ['left']\n"
    assert await subject.out(COUNT_IPC) == "[0, 0, 0] []\n"


async def test_04_shared_memory_files_are_removed_with_their_block(subject: Subject) -> None:
    """As above: what is in /dev/shm is memory by name, not files to keep."""
    code = """
    from multiprocessing import resource_tracker, shared_memory
    made = shared_memory.SharedMemory("kept", create=True, size=100)
    made.buf[:4] = b"data"
    resource_tracker.unregister(made._name, "shared_memory")
    """
    await subject.out(code)
    look = "import os; print(os.path.exists('/dev/shm/kept') and open('/dev/shm/kept', 'rb').read(4))"
    assert await subject.out(look) == ("b'data'\n" if subject.session else "False\n")


DEEP_SHM = """
    import os
    os.symlink("/workspace", "/dev/shm/link"); open("/workspace/stays", "w").close()
    os.mkfifo("/dev/shm/pipe")
    for number in range(300): open(f"/dev/shm/{number}", "w").close()
    os.chdir("/dev/shm")
    made = 0
    try:
        for made in range(1000):
            os.mkdir("d" * 100); os.chdir("d" * 100); open("file", "w").close()
            made % 10 == 5 and os.chmod("../file", 0)
    except OSError: pass
    os.chdir("/dev/shm")
    os.chmod("d" * 100, 0)
    print(made > 100)
"""


async def test_04_shared_memory_files_are_removed_in_any_folder_structure(subject: Subject) -> None:
    """Folders deeper than any path is long, closed ones, links: nothing of it is followed, and no end of it holds anybody up."""
    assert await subject.out(DEEP_SHM) == "True\n"
    look = "import os; print(len(os.listdir('/dev/shm')), os.path.exists('/workspace/stays'))"
    for _ in range(20):  # the supervisor stops after a moment, and goes on after the next block
        left = await subject.out(look)
        if subject.session or left == "0 True\n":
            break
    assert left == ("303 True\n" if subject.session else "0 True\n")


@in_process_mode
async def test_04_shared_memory_files_of_a_running_block_are_kept(subject: Subject) -> None:
    await subject.start()
    slow = "open('/dev/shm/mine', 'w').close(); import os, time; time.sleep(1.5); print(os.listdir('/dev/shm'))"
    running = asyncio.ensure_future(subject.run(slow))
    await asyncio.sleep(0.5)
    assert await subject.out("print('beside it')") == "beside it\n"
    assert (await running).output == "['mine']\n"
    assert await subject.out("import os; print(os.listdir('/dev/shm'))") == "[]\n"
