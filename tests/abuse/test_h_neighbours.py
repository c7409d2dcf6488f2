"""H 7: blocks of process mode against those that run at the same time, and against those that come next."""

import asyncio
from pathlib import Path

import pytest

from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.sandbox.sandboxes import run, without_landlock
from tests.sandbox.tools.host_tools import Tool

from .subject import Kind, Subject, in_process_mode, in_sessions, until_other_homes_are_removed

VICTIM = """
    import os, socket, threading, time
    secret = "".join(["of the", " victim"])
    unchanged = bytearray(b"unchanged" * 100)
    server = socket.socket(socket.AF_UNIX)
    server.bind("\\0victim")
    server.listen()
    with open("/tmp/pid", "w") as file:
        file.write(f"{os.getpid()} {os.getppid()}")
    until = time.monotonic() + 8
    while not os.path.exists("/tmp/done") and time.monotonic() < until:
        time.sleep(0.01)
    os.path.exists("/tmp/done") and os.remove("/tmp/done")
    print(unchanged == b"unchanged" * 100)
"""
# Each attempt is also made on a child of the attacker's own, where it must work: the control.
ATTACK = """
    import ctypes, os, signal, socket, subprocess, time
    while not (os.path.exists("/tmp/pid") and open("/tmp/pid").read()):
        time.sleep(0.01)
    pid, zygote = map(int, open("/tmp/pid").read().split())
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    libc = ctypes.CDLL(None, use_errno=True)
    def checked(code):
        if code < 0:
            raise OSError(ctypes.get_errno(), "refused")
    def connect():
        with socket.socket(socket.AF_UNIX) as sock: sock.connect("\\0victim")
    attempts = {
        "memory read": lambda pid: open(f"/proc/{pid}/mem", "rb"),
        "memory written": lambda pid: open(f"/proc/{pid}/mem", "r+b"),
        "map": lambda pid: open(f"/proc/{pid}/maps").read(),
        "environment": lambda pid: open(f"/proc/{pid}/environ").read(),
        "descriptors": lambda pid: os.readlink(f"/proc/{pid}/fd/1"),
        "directory": lambda pid: os.readlink(f"/proc/{pid}/cwd"),
        "root": lambda pid: os.listdir(f"/proc/{pid}/root/"),
        "files mapped": lambda pid: os.listdir(f"/proc/{pid}/map_files") and None,
        "asked": lambda pid: os.kill(pid, 0),
        "stopped": lambda pid: os.kill(pid, signal.SIGSTOP),
        "killed": lambda pid: os.kill(pid, signal.SIGKILL),
    }
    for name, attempt in attempts.items():
        for whose, target in (("own", child), ("other", pid), ("zygote", zygote)):
            try: attempt(target); print(name, whose, "done")
            except PermissionError: print(name, whose, "refused")
    try: connect(); print("socket other done")
    except PermissionError: print("socket other refused")
    for call in (lambda: os.kill(-1, signal.SIGKILL), lambda: os.killpg(pid, signal.SIGKILL)):
        try: call()
        except (PermissionError, ProcessLookupError): pass
    open("/tmp/done", "w").close()
"""


@in_process_mode
async def test_h7_concurrent_blocks_are_isolated_from_each_other(subject: Subject) -> None:
    executor = await subject.start({"timeout": 15})
    victim, attack = await asyncio.gather(run(executor, VICTIM), run(executor, ATTACK))
    assert (victim.outcome, victim.output) == ("ok", "True\n"), victim
    assert attack.outcome == "ok", attack
    told = dict(line.rsplit(" ", 1) for line in attack.output.splitlines())
    assert {name: how for name, how in told.items() if not name.endswith(" own") and how != "refused"} == {}
    # Of its own all is open but what takes a capability.
    assert {name for name, how in told.items() if name.endswith(" own") and how != "done"} <= {"files mapped own"}
    assert len(told) == 34


NEEDED = """
    import ctypes, multiprocessing, multiprocessing.shared_memory, os, signal, subprocess, sys, threading, time
    def double(number): return number * 2
    if __name__ == "__main__":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(double, range(4)) == [0, 2, 4, 6]
        lock = multiprocessing.Lock()
        with lock: pass
        shared = multiprocessing.shared_memory.SharedMemory(create=True, size=100)
        shared.buf[0] = 7
        shared.close(); shared.unlink()
        child = subprocess.Popen(["sleep", "60"])
        child.terminate()
        assert child.wait() == -signal.SIGTERM
        shell = subprocess.run(["sh", "-c", "sleep 60 & kill $!; wait $!; kill -0 $$ && echo $?"], capture_output=True)
        assert shell.stdout == b"0\\n", shell
        group = subprocess.Popen(["sleep", "60"], start_new_session=True)
        os.killpg(group.pid, signal.SIGKILL)
        assert group.wait() == -9
        os.kill(os.getpid(), 0)
        open("/proc/self/mem", "rb").close(); open("/proc/self/environ").read(); os.listdir("/proc/self/fd")
        open("/dev/stderr", "w").close(); open("/dev/null", "w").close(); open("/dev/shm/x", "w").close()
        memory = os.memfd_create("x")
        open(f"/proc/self/fd/{memory}", "r+b").close()
        os.makedirs("/tmp/a/b"); open("/tmp/a/b/c", "w").close()
        os.rename("/tmp/a/b/c", "/tmp/c"); os.link("/tmp/c", "/tmp/a/c"); os.rename("/tmp/a/b", "/tmp/b")
        os.truncate("/tmp/c", 10); os.mkfifo("/tmp/fifo"); os.symlink("a", "/tmp/link")
        signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
        signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(0.1)
        threading.Thread(target=signal.pthread_kill, args=(threading.get_ident(), 0)).start()
"""


@in_process_mode
async def test_h7_what_a_block_does_to_its_own_processes_and_files_works(subject: Subject) -> None:
    """The control: the domain takes nothing away that is the block's own."""
    assert await subject.out(NEEDED, timeout=10) == "alarm\n"


PLANT = """
    import glob, os, sys
    home = os.environ["HOME"]
    mark = "import os; open('/tmp/ran-%s' % os.getpid(), 'w')"
    version = "python%d.%d" % sys.version_info[:2]
    folders = [home, "/tmp/home", "/packages", home + "/.local", "/tmp/home/.local"]
    folders += [f"{folder}/lib/{version}/site-packages" for folder in list(folders)]
    files = {f"{folder}/{name}": mark + "\\n" for folder in folders for name in
             ("x.pth", "usercustomize.py", "sitecustomize.py", "planted.py", "threading.py")}
    shell = "touch /tmp/ran-shell-$$\\n"
    # The home of the block to come may be there already.
    homes = {home, "/tmp/home", *glob.glob(os.path.dirname(home) + "/home*"), *glob.glob("/tmp/home*")}
    for folder in (*homes, "/tmp"):
        for name in (".bashrc", ".bash_profile", ".profile", ".bash_login", ".zshrc", ".shrc", ".kshrc", ".bash_logout"):
            files[f"{folder}/{name}"] = shell
        files[f"{folder}/.config/pip/pip.conf"] = "[global]\\nindex-url = http://127.0.0.1:9/\\n"
        files[f"{folder}/.pydistutils.cfg"] = "[install]\\nprefix=/tmp/planted\\n"
        files[f"{folder}/.gitconfig"] = "[alias]\\nx = !touch /tmp/ran-git\\n"
    written = 0
    for path, text in files.items():
        try:
            os.path.islink(path) and os.remove(path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w").write(text)
            written += 1
        except OSError as error:
            assert path.startswith("/packages"), error
    print(written > 20)
"""
NEXT = """
    import glob, os, subprocess, sys
    # Whatever begins as programs begin: the interpreter, a shell of each kind.
    for command in ([sys.executable, "-c", "import threading"], ["sh", "-c", ":"], ["sh", "-l", "-c", ":"], ["bash", "-c", ":"],
                    ["bash", "-l", "-c", ":"], ["bash", "-i", "-c", ":"]):
        subprocess.run(command, capture_output=True, cwd="/")
    try:
        import planted
        print("imported")
    except ImportError: pass
    print(glob.glob("/tmp/ran-*"), [name for name in os.listdir(os.environ["HOME"]) if "planted" in name])
"""


@in_process_mode
async def test_h7_nothing_planted_by_one_block_runs_in_or_before_the_next(subject: Subject) -> None:
    """A `.pth` in the shared home ran before the next block, with that block's rights to call host tools."""
    for _ in range(2):
        assert await subject.out(PLANT) == "True\n"
        assert await subject.out("ls /tmp/ran-* 2>/dev/null; true", "sh") == ""
        assert await subject.out(NEXT, timeout=15) == "[] []\n"
        assert await subject.out("ls /tmp/ran-* 2>/dev/null; true", "bash") == ""


FULL = """
    import os, subprocess
    os.chdir(os.environ["HOME"])
    for number in range(300):
        open(f"file-{number}", "w").close()
    for depth in range(400):
        os.mkdir("d" * 100)
        os.chdir("d" * 100)
        open("file", "w").close()
    os.mkdir("closed"); open("closed/file", "w").close(); os.chmod("closed", 0)
    os.symlink("/workspace", "link")
    os.chdir(os.environ["HOME"])
    subprocess.run(["rm", "-rf", ".cache"])
    os.symlink("/workspace", ".cache")
    os.makedirs("/workspace/matplotlib", exist_ok=True)
    open("/workspace/kept", "w").close(); open("/workspace/matplotlib/fontlist-v330.json", "w").close()
"""


@in_process_mode
async def test_h7_homes_are_removed_after_their_blocks_also_large_and_deep_ones(subject: Subject) -> None:
    await subject.start()
    for _ in range(3):
        await subject.out(FULL)
    await until_other_homes_are_removed(subject)
    kept = "import os; print(os.path.exists('/workspace/kept'), os.listdir('/workspace/matplotlib'))"
    assert await subject.out(kept) == "True ['fontlist-v330.json']\n"


CLOSE = """
    import glob, os, time
    def close(path):
        try: os.chmod(path, 0); print("closed", path)
        except OSError: pass
    home = os.environ["HOME"]
    for number in range(300):
        open(f"{home}/file-{number}", "w").close()
    os.makedirs(home + "/.config", exist_ok=True)
    # That of the block to come, with what is in it.
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        for path in glob.glob("/packages/home-*/.*") + glob.glob("/packages/home-*"):
            close(path)
    for path in ("/packages", "/dev/shm", "/dev/mqueue", "/tmp", "/workspace"):
        close(path)
"""
USE = """
    import os
    assert os.listdir("/packages") is not None
    for folder in ("", ".cache", ".config"):
        folder = os.path.join(os.environ["HOME"], folder)
        os.makedirs(folder, exist_ok=True)
        open(folder + "/file", "w").close()
    for folder in ("/dev/shm", "/tmp", "/workspace"):
        open(folder + "/used", "w").close()
"""


async def test_h7_what_a_block_has_closed_is_open_to_the_next(subject: Subject) -> None:
    """With /dev/shm closed the supervisor ended; a closed home stayed for ever; the next block could not use its own."""
    for _ in range(3):
        assert "closed" in await subject.out(CLOSE)
        await subject.out(USE)
    if not subject.session:
        await until_other_homes_are_removed(subject)


CLOSE_AND_OPEN = """
    import os, time
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        for mode in (0, 0o700):
            os.chmod("/packages", mode)
            time.sleep(0.0005)
"""


# In Docker the folder of homes belongs to root, so that code can't close it.
@pytest.mark.parametrize("kind", [Kind("bubblewrap", "process")], ids=str, indirect=True)
async def test_h7_block_may_use_its_home_though_the_one_before_has_closed_the_folder_of_homes_now_and_then(subject):
    """The next block's process is forked meanwhile; if it could not open its home then, it never got the rights to it."""
    for _ in range(10):
        await subject.out(CLOSE_AND_OPEN)
        await subject.out(USE)
    await until_other_homes_are_removed(subject)


CLOSE_FOR_LONGER = """
    import os, time
    until = time.monotonic() + 1
    while time.monotonic() < until:
        os.chmod("/packages", 0)  # it is opened when another block ends
        time.sleep(0.01)
"""


# In Docker the folder of homes belongs to root, so that code can't close it.
@pytest.mark.parametrize("kind", [Kind("bubblewrap", "process")], ids=str, indirect=True)
async def test_h7_home_is_removed_though_the_next_block_has_closed_the_folder_of_homes_meanwhile(subject):
    for _ in range(2):
        await subject.out(FULL)
        await subject.out(CLOSE_FOR_LONGER)
    await until_other_homes_are_removed(subject)


FILL = """
    import os, time
    time.sleep(0.1)  # until the next home has been made, or not
    def fill():
        for number in range(100_000): open(f"{os.environ['HOME']}/file-{number}", "w").close()
    for _ in range(3):
        try: fill()
        except OSError as error: print(error.errno)
        time.sleep(0.1)
"""
HAS_HOME = "import os; print(os.path.isdir(os.environ['HOME']) and os.listdir(os.environ['HOME']) != ['file-0'])"


@in_process_mode
async def test_h7_each_block_has_a_home_after_one_that_used_up_the_room_for_it(subject: Subject) -> None:
    for _ in range(2):
        assert await subject.out(FILL) == "28\n" * 3
        for _ in range(5):
            assert await subject.out(HAS_HOME) == "True\n"


@in_sessions
async def test_h7_processes_of_a_session_shell_reach_no_interpreter(subject: Subject) -> None:
    """Its memory could be written to from there, as by any process of the same user."""
    await subject.out("import os; secret = 'of the session'; open('/tmp/pid', 'w').write(str(os.getpid()))")
    reach = """
    cat > /tmp/reach.py <<'END'
    import os
    pid = open("/tmp/pid").read()
    for path, mode in (("mem", "rb"), ("mem", "r+b"), ("environ", "rb"), ("maps", "rb")):
        try: open(f"/proc/{pid}/{path}", mode); print("opened", path)
        except PermissionError: pass
    print(os.access(f"/proc/{os.getpid()}/mem", os.W_OK))
    END
    python3 /tmp/reach.py"""
    assert await subject.out("\n".join(line[4:] for line in reach.splitlines()), "sh") == "True\n"
    # Blocks may still stop what earlier ones have started.
    await subject.out(
        "import subprocess; child = subprocess.Popen(['sleep', '60']); open('/tmp/child', 'w').write(str(child.pid))"
    )
    assert await subject.out("kill $(cat /tmp/child) && echo stopped", "sh") == "stopped\n"


async def together(executor: SandboxCodeExecutor, *codes: str) -> list[str]:
    """Run blocks at the same time; how each ended, with its output."""
    results = await asyncio.gather(*(run(executor, code) for code in codes))
    return [f"{result.outcome} {result.output}".strip() for result in results]


@pytest.mark.parametrize("kind", [Kind("docker", "process")], ids=str, indirect=True)
async def test_h7_without_landlock_blocks_that_may_call_tools_run_alone(subject: Subject, tmp_path: Path) -> None:
    async def note() -> str:
        """Note it."""
        return "noted"

    def counting(name: str) -> str:
        return f"""
            import os, time
            open("/tmp/running-{name}", "w").close()
            most, until = 0, time.monotonic() + 2
            while most < 2 and time.monotonic() < until:
                most = max(most, len([each for each in os.listdir("/tmp") if each.startswith("running")]))
                time.sleep(0.01)
            time.sleep(0.1)
            print(most)
            os.remove("/tmp/running-{name}")
        """

    options = {"timeout": 15, "seccomp": without_landlock(tmp_path), "tools": [Tool(note)]}
    executor = await subject.start(options)
    assert await together(executor, *map(counting, "abc")) == ["ok 1"] * 3
    # Elsewhere they run together.
    async with subject.kind.make(timeout=15, tools=[Tool(note)]) as other:
        assert await together(other, *map(counting, "ab")) == ["ok 2"] * 2
    # Nor does what lies in the folder of packages run ahead of a block.
    plant = PLANT.replace('assert path.startswith("/packages"), error', "raise")
    assert await subject.out(plant) == "True\n"
    assert await subject.out("import glob; print(glob.glob('/tmp/ran-*'))") == "[]\n"
