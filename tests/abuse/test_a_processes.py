"""A. Resources: processes, threads, descriptors and time."""

import pytest

from .subject import Subject


def ended_late(subject: Subject) -> tuple[str, int, str]:
    """What a block that had to be killed at its deadline comes to."""
    return "timeout", 124, "restored" if subject.session else "kept"


# Case 1.
async def test_fork_bomb_ends_at_its_deadline(subject: Subject) -> None:
    code = """
    import os
    while True:
        try:
            os.fork()
        except OSError:
            pass
    """
    result = await subject.run(code, timeout=0.3)
    assert (result.outcome, result.exit_code, result.state) == ended_late(subject)


# Case 1.
async def test_fork_bomb_and_bomb_of_threads_meet_eagain(subject: Subject) -> None:
    threads = """
    import threading
    started, done = 0, threading.Event()
    try:
        while True:
            threading.Thread(target=done.wait).start()
            started += 1
    except RuntimeError as error:
        print(error, 32 < started <= 64)
    done.set()
    # A fork beside threads that still end would warn.
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()
    """
    assert await subject.out(threads) == "can't start new thread True\n"
    processes = """
    import errno, os, signal
    started = 0
    try:
        while True:
            if os.fork() == 0:
                signal.pause()
            started += 1
    except OSError as error:
        print(errno.errorcode[error.errno], 32 < started <= 64)
    """
    # In a session they stay, and the blocks that follow run beside them.
    assert await subject.out(processes) == "EAGAIN True\n"


# Case 11.
async def test_all_descriptors_used_up_and_the_result_still_arrives(subject: Subject) -> None:
    code = """
    import errno, os
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error:
        print(errno.errorcode[error.errno], 100 < len(taken) < 256)
    """
    assert await subject.out(code) == "EMFILE True\n"
    if subject.session:
        assert await subject.out("len(taken) > 100") == "True\n"
        # Shells, which start afresh, have theirs.
        assert await subject.out("exec 20</dev/null && echo open", "bash") == "open\n"


# Case 12.
async def test_zombies_are_reaped_with_their_block(subject: Subject) -> None:
    """As many as the limit of processes allows, again and again: ten thousand at once can't be."""
    code = """
    import os
    zombies = 0
    try:
        while True:
            if os.fork() == 0:
                os._exit(0)
            zombies += 1
    except BlockingIOError:
        print(zombies > 32)
    """
    for _ in range(4 if not subject.session else 1):
        assert await subject.out(code) == "True\n"
    if subject.session:
        collect = "import os\ntry:\n    while True: os.wait()\nexcept ChildProcessError: print('none left')"
        for _ in range(3):
            assert await subject.out(collect) == "none left\n"
            assert await subject.out(code) == "True\n"


DAEMONS = {
    "setsid": "os.setsid()",
    "double fork": "os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0)",
    "subreaper": "ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.setsid(); os.fork() and os.fork() and time.sleep(1000)",
    "orphans of orphans": "[os.fork() and os._exit(0) for _ in range(20)]",
    "stopped": "os.setsid(); os.kill(os.getpid(), signal.SIGSTOP)",
    "deaf": "[signal.signal(n, signal.SIG_IGN) for n in set(range(1, 64)) - {9, 19, 32, 33}]",
}


DAEMON = """
    import ctypes, os, signal, time
    r, w = os.pipe()
    if os.fork() == 0:
        os.close(r)
        open("/tmp/{number}", "a").write(f"{{os.getpid()}} ") if {how!r} == "stopped" else None
        os.write(w, b".") if {how!r} == "stopped" else None
        {code}
        open("/tmp/{number}", "a").write(f"{{os.getpid()}} ")
        os.write(w, b".")
        time.sleep(1000)
    os.close(w)
    os.read(r, 1)
"""
LOOK_FOR_DAEMONS = """
    import os
    for pid in open("/tmp/{number}").read().split():
        try:
            state = open(f"/proc/{{pid}}/stat").read().split()[2]
        except (FileNotFoundError, ProcessLookupError):
            state = "gone"
        print("gone" if state == "Z" else state)  # what is dead may not be buried yet
"""


# Case 13.
async def test_daemon_by_double_fork_or_setsid_dies_with_its_block_or_session(subject: Subject) -> None:
    """That it dies with its session is seen by the fixture, once the sandbox has been stopped."""
    for number, (how, code) in enumerate(DAEMONS.items()):
        await subject.out(DAEMON.format(number=number, how=how, code=code))
        found = set((await subject.out(LOOK_FOR_DAEMONS.format(number=number))).split())
        alive = ("T" if how == "stopped" else "S") if subject.session else "gone"
        assert found == {alive}, how


# Case 14.
async def test_daemon_that_holds_stdout_open_holds_nobody_up(subject: Subject) -> None:
    assert await subject.out("import subprocess; p = subprocess.Popen(['sleep', '600']); print('out')") == "out\n"
    assert await subject.out("(sleep 600; echo late) & echo out", "sh") == "out\n"


# Case 15.
async def test_ignored_signals_do_not_help(subject: Subject) -> None:
    code = """
    import signal, time
    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    print("deaf", flush=True)
    while True:
        time.sleep(1000)
    """
    result = await subject.run(code, timeout=3)
    assert (result.outcome, result.exit_code, result.state) == ended_late(subject)
    assert result.output == "deaf\n\n Timeout"
    result = await subject.run("trap '' TERM INT HUP QUIT USR1 USR2; while :; do sleep 100; done", "sh", timeout=0.5)
    assert (result.outcome, result.exit_code, result.state) == ("timeout", 124, "kept")


# Case 16.
@pytest.mark.parametrize(
    "code", ["9 ** 9 ** 9", "import re; re.match(r'(a+)+$', 'a' * 64 + 'b')"], ids=["power", "regex"]
)
async def test_busy_loop_inside_c_is_killed_and_the_state_before_it_kept(subject: Subject, code: str) -> None:
    """That the variable of the first block is there again is what the fixture looks for."""
    result = await subject.run("codeact_witness = 'changed'\n" + code, timeout=0.4)
    assert (result.outcome, result.exit_code, result.state) == ended_late(subject)


SLEEPS = (
    "import time; time.sleep(1e9)",
    "import threading; threading.Event().wait()",
    "import os; os.read(os.pipe()[0], 1)",
    "import select; select.select([], [], [])",
    "import ctypes; ctypes.CDLL(None).pause()",
)
CELLS = (
    "%%time\nwhile True: pass",
    "!sleep 60",
    "%%bash\nsleep 60 & sleep 60",
    "import asyncio, time\nawait asyncio.gather(asyncio.sleep(60), asyncio.to_thread(time.sleep, 60))",
)


# Cases 17, I40.
async def test_what_never_ends_is_stopped_at_the_deadline(subject: Subject) -> None:
    for code in (*SLEEPS, *(CELLS if subject.session else ())):
        result = await subject.run(code, timeout=0.3)
        assert (result.outcome, result.exit_code, result.state) == ended_late(subject), code
    result = await subject.run("sleep infinity", "sh", timeout=0.3)
    assert (result.outcome, result.exit_code, result.state) == ("timeout", 124, "kept")


# Case 18.
async def test_except_base_exception_in_a_loop(subject: Subject) -> None:
    code = """
    while True:
        try:
            while True:
                pass
        except BaseException:
            print("caught")
    """
    result = await subject.run(code, timeout=0.4)
    assert (result.outcome, result.exit_code, result.state) == ended_late(subject)


SPIN = """
    import multiprocessing, os, threading
    def spin():
        while True:
            pass
    for _ in range(4):
        if os.fork() == 0:
            spin()
    threading.Thread(target=spin, daemon=True).start()
"""
MEASURE = """
    import os, time
    def used():
        ticks = 0
        for name in filter(str.isdigit, os.listdir("/proc")):
            ticks += sum(map(int, open(f"/proc/{name}/stat").read().rpartition(")")[2].split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")
    began, before = time.monotonic(), used()
    # At least until they have been seen to spin.
    while time.monotonic() - began < 1.5 or used() == before:
        time.sleep(0.1)
    share = (used() - before) / (time.monotonic() - began)
    print("spins", "within" if share < 0.4 else share)
"""


# Cases 20, 82.
async def test_spinning_leftovers_stay_within_the_quota(subject: Subject) -> None:
    await subject.start(cpus=0.25)
    subject.may_fail_without_cgroup()
    if subject.session:
        await subject.out(SPIN, timeout=10)
        assert await subject.out(MEASURE, timeout=30) == "spins within\n"
    else:
        assert await subject.out(SPIN + MEASURE, timeout=30) == "spins within\n"


RECURSION = {
    "python": "def f(): f()\nf()",
    "through C": "def f(): return list(map(lambda _: f(), [0]))\nf()",
    "repr": "l = []\nfor _ in range(2 * 10 ** 5): l = [l]\nrepr(l)",
}


# Case 21.
async def test_recursion_limit_of_a_billion_is_a_crash(subject: Subject) -> None:
    """Which verdict depends on the version of Python: its own limit for C, the end of the stack, or that of the memory."""
    await subject.start(memory="128m")
    verdicts = {("crashed", "SIGSEGV"), ("oom", "OutOfMemory"), ("error", "RecursionError"), ("error", "MemoryError")}
    for how, code in RECURSION.items():
        result = await subject.run(f"import sys; sys.setrecursionlimit(10 ** 9)\n{code}", timeout=50)
        assert (result.outcome, result.error.type if result.error else None) in verdicts, (how, result)
        assert result.state == ("restored" if subject.session and result.outcome != "error" else "kept")


# Case 22.
async def test_abort_leaves_no_core_file(subject: Subject) -> None:
    result = await subject.run("import os; os.abort()")
    assert (result.outcome, result.exit_code) == ("crashed", 134)
    assert result.error is not None
    assert result.error.type == "SIGABRT"
    assert result.artifacts == ()
    look = """
    import os, resource
    written = ("/workspace", "/tmp", "/dev/shm", os.getcwd())
    names = [name for folder in written for _, _, names in os.walk(folder) for name in names]
    print([name for name in names if name.startswith("core")], resource.getrlimit(resource.RLIMIT_CORE))
    """
    assert await subject.out(look) == "[] (0, 0)\n"
    result = await subject.run("ulimit -c unlimited 2>/dev/null; kill -ABRT $$", "sh")
    assert (result.outcome, result.exit_code, result.artifacts) == ("crashed", 134, ())
    raise_it = """
    import resource
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (1 << 30, 1 << 30))
    except (ValueError, OSError) as error:
        print(error)
    """
    assert await subject.out(raise_it) == "not allowed to raise maximum limit\n"
