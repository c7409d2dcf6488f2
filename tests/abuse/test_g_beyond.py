"""Beyond the list: what an adversary who has read the runner's source tried, and what now withstands it.

Case 84 on; each was a hole, or a way to ruin the blocks that follow, until it was tried.
"""

import os

from .oracles import eventually_empty, processes_in
from .subject import Subject

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


OTHERS = """
    import ctypes, os, resource
    def parent(pid):
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]
    zygote = [pid for pid in os.listdir("/proc") if pid.isdigit() and parent(pid) == "1"][0]
    for pid in (1, int(zygote)):
        for attempt in (
            lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (4, 4)),
            lambda: resource.prlimit(pid, resource.RLIMIT_NPROC, (1, 1)),
            lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
            lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
            lambda: os.setpriority(os.PRIO_USER, 0, 19),
        ):
            try:
                attempt()
                print("done")
            except PermissionError:
                print("refused")
    print(resource.prlimit(1, resource.RLIMIT_NOFILE)[0] > 64, os.getpriority(os.PRIO_PROCESS, 1))
"""


FILL = """
    import array, os, socket
    fd, kept, count = os.open(os.devnull, os.O_RDONLY), [], 0
    try:
        while True:
            kept += socket.socketpair()
            for _ in range(4):
                kept[-2].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd] * 250))])
                count += 250
    except OSError as error:
        print(error.errno, count > 250, flush=True)
"""


RAN = """
    import glob, os
    def parent(pid):
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]
    zygotes = {pid for pid in os.listdir("/proc") if pid.isdigit() and parent(pid) == "1"}
    print(sorted(zygotes & {path.rpartition("-")[2] for path in glob.glob("/tmp/ran-*")}))
"""


NAMES = """
    import os
    for number in range(1500):
        open(f"/workspace/{'n' * 200}{ROUND:03}{number:05}", "w").close()
"""
CLEAR = "import os\nfor name in os.listdir('/workspace'): os.remove('/workspace/' + name)"
MEASURE = "print(int(open('/proc/1/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE'))"
