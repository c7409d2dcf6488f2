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
