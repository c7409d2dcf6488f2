"""Beyond the list: what an adversary who has read the runner's source tried, and what now withstands it.

Case 84 on; each was a hole, or a way to ruin the blocks that follow, until it was tried.
"""

import asyncio
import os

import pytest

from autogen_codeact.executors import Limits
from codeact_sandbox.files.workspace import Workspace
from codeact_sandbox.work_folder import WorkFolder
from tests.sandbox.sandboxes import FORGE, run

from .oracles import eventually_empty, processes_in
from .subject import Subject, each_engine

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


async def test_84_a_sibling_of_the_blocks_process_is_refused(subject: Subject) -> None:
    """Whose parent is the zygote is no descendant of the block, and no orphan."""
    assert await subject.out(SIBLING) == "refused True\n"


async def test_84_a_sibling_is_found_where_the_filter_is_the_engines_own(subject: Subject) -> None:
    if subject.kind.engine != "docker" or subject.session:
        pytest.skip("only Docker has another filter, and in a session processes may outlive their block")
    await subject.start({"seccomp": "engine"})
    assert await subject.out(SIBLING) == "born True\n"


HEADLESS = f"""
    import ctypes, os, threading, time
    def leave():
        threading.Thread(target=time.sleep, args=(600,)).start()
        ctypes.CDLL(None).syscall({EXIT}, 0)
"""


async def test_85_a_process_whose_first_thread_has_ended_is_killed_with_its_block(subject: Subject) -> None:
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


async def test_85_a_block_whose_first_thread_has_ended_meets_its_deadline(subject: Subject) -> None:
    result = await subject.run(HEADLESS + "    leave()", timeout=1)
    assert (result.outcome, result.exit_code) == ("timeout", 124)


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


async def test_86_limits_and_priority_of_the_supervisor_and_the_zygote_stay(subject: Subject) -> None:
    """The kernel asks for the same user only; with four descriptors the supervisor died, with priority 19 it came late."""
    # A bubblewrap sandbox has the priority of this process.
    priority = os.getpriority(os.PRIO_PROCESS, 0) if subject.kind.engine == "bubblewrap" else 0
    assert await subject.out(OTHERS) == "refused\n" * 10 + f"True {priority}\n"


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
ETOOMANYREFS = 109


async def test_87_descriptors_in_flight_of_one_sandbox_do_not_stop_another(subject: Subject) -> None:
    """The kernel counts them by user, whatever the container, and each supervisor hands out descriptors as that user."""
    await subject.start()
    options = {"timeout": 20, "limits": Limits(memory="256m", nofile=1024)}
    async with subject.kind.make(**options) as attacker:
        # A session's sockets stay after the block; in process mode the block has to.
        code = FILL if subject.session else FILL + "    import time; open('/tmp/full', 'w'); time.sleep(15)"
        filling = asyncio.ensure_future(run(attacker, code))
        if not subject.session:
            await run(attacker, "import os, time\nwhile not os.path.exists('/tmp/full'): time.sleep(0.01)")
        for _ in range(2):
            assert await subject.out("print('here')") == "here\n"
        async with subject.kind.make(**options) as third:
            assert (await run(third, "print('too')")).output == "too\n"
        if subject.session:
            assert (await filling).output == f"{ETOOMANYREFS} True\n"
        else:
            filling.cancel()
            await asyncio.wait({filling})


async def test_88_a_forged_checkpoint_costs_the_session_at_most(subject: Subject) -> None:
    """A number that is no process's ended the supervisor."""
    if not subject.session:
        pytest.skip("there are no checkpoints in process mode")
    code = f"""
    {FORGE}
    import threading, time
    def speak():
        sock = socket.socket(fileno=os.dup(control_socket()))
        for _ in range(40):
            for _ in range(20):
                try: sock.sendall(frame(b"C", own_ident(), {{"pid": pid}}))
                except OSError: return
            time.sleep(0.005)
    """
    assert await subject.out(code) == ""
    for pid in (10**18, 2**31, 2**22 + 1, 1, 0, -1, True, "7", None, 1.5):
        assert await subject.out(f"pid = {pid!r}; threading.Thread(target=speak).start()") == ""
        for _ in range(5):
            assert await subject.out("time.sleep(0.02); print('next')") == "next\n", pid


PTH = """
    import os, signal, site
    for folder in (site.getusersitepackages(), "/workspace", "/tmp/home"):
        os.makedirs(folder, exist_ok=True)
        note = "import os; open('/tmp/ran-%d' % os.getpid(), 'w').write(str(os.getppid()))"
        for name in ("usercustomize", "sitecustomize", "threading", "preloaded"):
            with open(f"{folder}/{name}.py", "w") as file:
                file.write(note)
        with open(f"{folder}/x.pth", "w") as file:
            file.write(note + "\\n")
    def parent(pid):
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]
    zygotes = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and parent(pid) == "1"]
    os.kill(zygotes[0], signal.SIGKILL)
"""
RAN = """
    import glob, os
    def parent(pid):
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]
    zygotes = {pid for pid in os.listdir("/proc") if pid.isdigit() and parent(pid) == "1"}
    print(sorted(zygotes & {path.rpartition("-")[2] for path in glob.glob("/tmp/ran-*")}))
"""


@pytest.mark.parametrize("options", [{}, {"environment": {"PYTHONPATH": "/workspace"}}], ids=["plain", "PYTHONPATH"])
async def test_89_a_new_zygote_runs_nothing_that_code_left_for_it(subject: Subject, options: dict[str, object]) -> None:
    """It starts workers and tells of their end: whoever is in it decides about all blocks to come."""
    await subject.start(options)
    await subject.run(PTH)
    for _ in range(2):
        await subject.run("import os; [os.remove(f'/workspace/{name}.py') for name in ('threading', 'preloaded')]")
    shown = await subject.out(RAN)
    # A session's own process is PID 1's child once its zygote has died, and may run such code.
    assert shown == "[]\n" or (subject.session and len(eval(shown)) == 1)


@pytest.mark.parametrize("folder", ["/workspace", "/tmp"])
async def test_90_a_folder_closed_to_its_own_user_is_open_for_the_next_block(subject: Subject, folder: str) -> None:
    code = f"import os\ntry: os.chmod({folder!r}, 0)\nexcept PermissionError: pass"
    assert await subject.out(code) == ""
    assert await subject.out("open('/workspace/a', 'w'); open('/tmp/a', 'w'); print('both')") == "both\n"


async def test_91_an_environment_that_grows_from_block_to_block_stays_bounded(subject: Subject) -> None:
    """At 32 MiB it no longer fitted into a request, and the supervisor gave up."""
    if not subject.session:
        pytest.skip("in process mode nothing is carried over")
    for number in range(12):
        result = await subject.run(f"import os; os.environ['LARGE_{number}'] = 'x' * 3_000_000")
        assert result.outcome == "ok"
    assert any("too large to be shared" in note for note in result.notes)
    shell = await subject.run("echo here", "sh")
    assert (shell.outcome, shell.state) == ("error", "kept")  # Argument list too long
    clear = "for name in list(os.environ):\n    if 'LARGE' in name: del os.environ[name]"
    await subject.out(clear)
    assert await subject.out("echo here", "sh") == "here\n"


OBSTACLES = """
    import os
    for number in range(300):
        os.mkfifo(f"/workspace/.codeact-part-{number}")
"""


async def test_92_what_lies_where_an_upload_begins_is_no_obstacle(subject: Subject) -> None:
    await subject.out(OBSTACLES)
    (subject.work_dir / "sent.txt").write_text("from the host")
    assert await subject.out("print(open('/workspace/sent.txt').read())") == "from the host\n"


STEAL = """
    import os, threading
    def steal(write):
        fd = os.open("/proc/self/fd/1", os.O_WRONLY if write else os.O_RDONLY)
        while True:
            os.write(fd, b"x" * 100) if write else os.read(fd, 65536)
    for write in (True, False, False, False):
        threading.Thread(target=steal, args=(write,), daemon=True).start()
    import time; time.sleep(0.02)
"""


async def test_93_code_that_reads_its_own_output_pipe_steals_from_itself(subject: Subject) -> None:
    """Between the question how much lies in the pipe and the reading of it, nothing may be left; that ended the supervisor."""
    for _ in range(10):
        result = await subject.run(STEAL)
        assert result.outcome == "ok"
    assert await subject.out("print('after')") == "after\n"


NAMES = """
    import os
    for number in range(1500):
        open(f"/workspace/{'n' * 200}{ROUND:03}{number:05}", "w").close()
"""
CLEAR = "import os\nfor name in os.listdir('/workspace'): os.remove('/workspace/' + name)"
MEASURE = "print(int(open('/proc/1/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE'))"


@pytest.fixture
def few_files_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many new files the host stores 50; the supervisor reports all of them."""
    monkeypatch.setattr(WorkFolder, "new_workspace", lambda _, root, protected: Workspace(root, max_files=50))


@each_engine
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("few_files_stored")
async def test_94_files_made_and_removed_again_do_not_fill_the_supervisor(subject: Subject) -> None:
    """It remembers the files that it has reported; those that are gone it must forget."""
    await subject.start(files=4000)
    sizes = []
    for number in range(8):
        await subject.out(NAMES.replace("ROUND", str(number)), timeout=40)
        sizes.append(int(await subject.out(f"{CLEAR}\n{MEASURE}", timeout=40)))
        for path in subject.work_dir.glob("nnn*"):
            path.unlink()
    assert sizes[-1] - sizes[2] < 1_500_000, sizes


async def test_95_processes_without_room_and_a_dead_zygote_are_no_end(subject: Subject) -> None:
    """A zygote that can't be forked again because the code holds every process that there may be."""
    code = """
    import os, signal, time
    def parent(pid):
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]
    zygote = int([pid for pid in os.listdir("/proc") if pid.isdigit() and parent(pid) == "1"][0])
    try:
        while True:
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                while True:
                    try:
                        if os.fork() == 0:
                            time.sleep(60)
                    except OSError:
                        time.sleep(0)
    except OSError:
        try: os.kill(zygote, signal.SIGKILL)
        except PermissionError: pass  # in process mode the block's domain ends here
    time.sleep(60)
    """
    result = await subject.run(code, timeout=2)
    assert result.outcome in ("timeout", "crashed")
    assert await subject.out("print('next')") == "next\n"


@pytest.mark.parametrize(
    "code", ["raise ValueError('m\\ud800')", "class A:\n def __repr__(self): return 'v\\udfff'\nA()"]
)
async def test_96_lone_surrogates_in_errors_and_values_can_be_sent_on(subject: Subject, code: str) -> None:
    result = await subject.run(code)
    texts = [result.output, result.value_repr, result.error and result.error.message, *result.notes]
    assert all(text.encode() is not None for text in texts if text)
    assert ("\\ud800" in str(result.error)) is ("raise" in code)
