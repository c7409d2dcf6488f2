"""Beyond the list: what an adversary who has read the runner's source tried, and what now withstands it.

Case 84 on; each was a hole, or a way to ruin the blocks that follow, until it was tried.
"""

import contextlib
import os

import pytest

from autogen_codeact.executors import SandboxDied

from .oracles import eventually_empty, processes_in
from .subject import Subject, in_sessions

CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
EXIT = {"x86_64": 60, "aarch64": 93}[os.uname().machine]

SIBLING = f"""
    import ctypes, errno, os, time
    libc = ctypes.CDLL(None, use_errno=True)
    CLONE_PARENT, SIGCHLD = 0x8000, 17
    pid = libc.syscall({CLONE}, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        time.sleep(600)
    print("refused" if pid < 0 else "born", os.getppid() > 0)
"""


# Case 84.
async def test_a_sibling_of_the_blocks_process_is_refused(subject: Subject) -> None:
    """Whose parent is the zygote is no descendant of the block, and no orphan."""
    assert await subject.out(SIBLING) == "refused True\n"


HEADLESS = f"""
    import ctypes, os, threading, time
    def leave():
        threading.Thread(target=time.sleep, args=(600,)).start()
        ctypes.CDLL(None).syscall({EXIT}, 0)
"""


# Case 85.
async def test_a_process_whose_first_thread_has_ended_is_killed_with_its_block(subject: Subject) -> None:
    """The kernel shows it as a zombie, and it goes on."""
    leave = HEADLESS + "    if os.fork() == 0:\n        os.setsid()\n        leave()\n    time.sleep(0.3)"
    assert await subject.out(leave) == ""
    if subject.session:
        result = await subject.run("import time; time.sleep(60)", timeout=1)
        assert (result.outcome, result.state) == ("timeout", "restored")
        left = await eventually_empty(lambda: _without_command_line(subject))
        assert not left


def _without_command_line(subject: Subject) -> dict[str, set[str]]:
    """Those whose first thread has ended; the dead too, until they are waited for."""
    found = {each for each in processes_in(subject.namespaces) if each.endswith(": ")}
    return {"processes": found} if found else {}


CHILDREN = """
    import os, signal, time
    def parent(pid):
        return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    def living():
        return sorted(int(pid) for pid in os.listdir("/proc") if pid.isdigit())
    def children(pid):
        found = []
        for each in living():
            try: parent(each) == pid and found.append(each)
            except OSError: pass
        return found
"""


# Case 97.
@in_sessions
async def test_a_checkpoint_runs_no_handler_and_protects_no_process(subject: Subject) -> None:
    """A handler of the session's ran in the checkpoint, and what it started outlived the deadline of its block."""
    set_up = f"""
    {CHILDREN.strip()}
    me, mark = os.getpid(), "before"
    def handler(*_):
        os.getpid() != me and os.fork() == 0 and time.sleep(60)
    def shelter():
        if parent(os.getpid()) == me and os.fork() == 0:
            os.closerange(3, 200)  # the session waits until nobody else holds its pipes
            time.sleep(60)
    for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM, signal.SIGRTMIN):
        signal.signal(number, handler)
    """
    assert await subject.out(set_up) == ""
    wake = """
    checkpoint = children(me)[-1]
    for number in set(range(1, 65)) - {9, 19, 32, 33}: os.kill(checkpoint, number)
    time.sleep(0.2)
    print(children(checkpoint), flush=True)
    """
    for end, outcome, timeout in (("os._exit(3)", "crashed", 10), ("time.sleep(60)", "timeout", 4)):
        result = await subject.run(wake + end, timeout=timeout)
        assert (result.outcome, result.output, result.state) == (
            outcome,
            "[]\n" + "\n Timeout" * (outcome == "timeout"),
            "restored",
        )
        # What had come for it is forgotten, and its handlers work again.
        assert await subject.out("me = os.getpid(); print(mark, signal.pthread_sigmask(0, ()))") == "before set()\n"
    # Nor does what code has a fork call, before it is woken.
    assert await subject.out("os.register_at_fork(after_in_child=shelter)") == ""
    result = await subject.run(
        "me = os.getpid(); time.sleep(0.3)\nprint(len(children(children(me)[-1])), flush=True)\ntime.sleep(60)",
        timeout=4,
    )
    assert (result.outcome, result.output, result.state) == ("timeout", "0\n\n Timeout", "restored")
    living = [
        each for each in processes_in(subject.namespaces) if not each.endswith(": ")
    ]  # a dead one has no command line
    assert len(living) == 3


# Case 101.
@pytest.mark.timeout(120)
async def test_a_supervisor_that_the_kernel_kills_for_memory_is_reported(subject: Subject) -> None:
    """Memory that belongs to no process, and processes smaller than PID 1: nothing in the sandbox could keep it from dying."""
    await subject.start()
    if not subject.has_cgroup:
        pytest.skip("nothing bounds memory that is no process's own, so the machine's would be used up")
    code = """
    import os
    os.dup2(os.memfd_create("bomb"), 9, inheritable=True)
    open("/proc/self/oom_score_adj", "w").write("0")
    if os.fork() == 0:
        os.execv("/bin/sh", ["sh", "-c", "while :; do cat /dev/zero >&9; done"])
    os.execv("/bin/sh", ["sh", "-c", "sleep 50"])
    """
    with contextlib.suppress(SandboxDied):
        result = await subject.run(code, timeout=45)
        assert result.outcome in ("oom", "crashed"), result
