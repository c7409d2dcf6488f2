"""Beyond the list, 97 and on: hiding in what sleeps, and in what the kernel counts elsewhere; binding others to one processor."""

import contextlib

import pytest

from autogen_codeact.executors import SandboxDied

from .oracles import processes_in
from .subject import Subject, in_sessions

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
