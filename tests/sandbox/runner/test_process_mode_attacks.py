"""Process mode: what code does to the sandbox harms only its own block."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from tests.cases import case
from tests.sandbox.runner.test_process_mode import executor
from tests.sandbox.sandboxes import FORGE, out, run, short_result, without_landlock

__all__ = ["executor"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def exposed(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DockerCommandLineCodeExecutor]:
    """A sandbox without Landlock, where a block can send signals to every process."""
    profile = without_landlock(tmp_path_factory.mktemp("profile"))
    async with DockerCommandLineCodeExecutor(timeout=40, seccomp=profile) as started:
        yield started


class TestAttacksOnTheSandbox:
    """Without Landlock signals can be sent, since everything in it has the same user; what must hold is the next block."""

    async def test_code_that_sends_signals_ends_normally_and_the_next_block_runs(self, exposed):
        for code in [
            "import os; [os.kill(1, number) for number in range(1, 65)]",
            "import os; os.kill(-1, 9)",
            "import os\nfor pid in os.listdir('/proc'):\n    if pid.isdigit() and int(pid) != os.getpid(): os.kill(int(pid), 9)",
            "import os\nfor pid in os.listdir('/proc'):\n    if pid.isdigit() and int(pid) != os.getpid(): os.kill(int(pid), 19)",
            "import os; os.kill(os.getppid(), 2)",
        ]:
            with case(code):
                assert short_result(await run(exposed, code + "\nprint('done')")) == ("ok", 0, "done\n")
                for _ in range(3):
                    assert await out(exposed, "print('next')") == "next\n"

    async def test_code_that_stops_all_others_and_itself_ends_by_the_deadline(self, exposed):
        exposed.sandbox.timeout = 3
        code = "import os; os.kill(-1, 19); os.kill(os.getpid(), 19)"
        assert (await run(exposed, code)).outcome == "timeout"
        exposed.sandbox.timeout = 40
        assert await out(exposed, "print('next')") == "next\n"

    async def test_code_can_not_read_the_supervisor_the_zygote_or_the_next_block(self, executor):
        output = await out(
            executor,
            """
            import os
            for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
                if pid == os.getpid(): continue
                for name in ("environ", "mem", "maps", "stack", "auxv", "fd", "cwd", "exe", "fd/0", "fd/1", "fd/2"):
                    path = f"/proc/{pid}/{name}"
                    look = {"fd": os.listdir, "cwd": os.readlink, "exe": os.readlink}
                    try:
                        look.get(name, lambda path: open(path, "rb").read(1))(path)
                        print("can", path)
                    except OSError:
                        pass
            print("tried")
            """,
        )
        assert output == "tried\n"

    async def test_code_has_one_socket_and_no_other_way_out(self, executor):
        output = await out(
            executor,
            """
            import os
            for fd in sorted(os.listdir("/proc/self/fd"), key=int):
                try: print(os.readlink("/proc/self/fd/" + fd).split(":")[0])
                except OSError: pass
            """,
        )
        assert output == "/dev/null\npipe\npipe\nsocket\n"

    async def test_code_can_forge_its_own_result_and_no_other(self, executor):
        code = (
            FORGE
            + """
    for ident in (*range(1000), own_ident()):
        os.write(control_socket(), frame(b"D", ident, {"exit_code": 0, "value": "forged", "error": None}))
    raise ValueError("mine")
"""
        )
        forged = await run(executor, code)
        assert forged.outcome in {"ok", "error"}
        results = await asyncio.gather(*(run(executor, f"print({number})") for number in range(5)))
        assert [short_result(result) for result in results] == [("ok", 0, f"{number}\n") for number in range(5)]
        assert [(result.value, result.value_repr) for result in results] == [(None, None)] * 5

    async def test_code_that_misuses_its_socket_harms_only_itself(self, executor):
        for send in [
            "os.write(control_socket(), b'garbage' * 1000)",
            "os.write(control_socket(), struct.pack('!cII', b'D', 1, 2**32 - 1))",
            "os.write(control_socket(), frame(b'D', 1, {})[:-1])",
            "os.write(control_socket(), struct.pack('!cIII', b'D', 1, 8, 2**32 - 1) + b'x' * 4)",
            "os.write(control_socket(), struct.pack('!cIII', b'D', 1, 100004, 100000) + b'[' * 100000)",
            "os.write(control_socket(), struct.pack('!cIII', b'D', 1, 1000004, 1000000) + b'9' * 1000000)",
            "os.write(control_socket(), frame(b'?', 1, {}) * 1000)",
            "os.write(control_socket(), frame(b'C', own_ident(), {'pid': [1]}) + frame(b'S', 1, {'pid': 1}))",
            "os.write(control_socket(), frame(b'D', own_ident(), {'exit_code': 'x', 'error': [], 'value': {}, 'late': 3}))",
            "s = socket.socket(fileno=os.dup(control_socket())); socket.send_fds(s, [b'x'] * 1, [0, 1, 2] * 50)",
            "os.close(control_socket())",
        ]:
            with case(send):
                result = await run(executor, FORGE + f"    {send}\n    print('sent')\n")
                assert result.outcome in {"ok", "error", "crashed"}
                # Its own result it may forge; with that the block has ended.
                assert result.output == "sent\n" or "'D', own_ident()" in send
                assert await out(executor, "print('next')") == "next\n"

    @pytest.mark.parametrize("threads", [0, 2])
    async def test_code_that_reports_its_end_has_ended_with_all_its_processes(self, executor, threads):
        """With a single thread it is killed at its word; with more, its process has to end, as others do that have."""
        code = f"""
    import time
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, b"here")
        time.sleep(60)
    os.read(reading, 4)
    children = open(f"/proc/self/task/{{os.getpid()}}/children").read().split()
    open("pids", "w").write(" ".join([str(os.getpid()), *children]))
    for _ in range({threads}): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    os.write(control_socket(), frame(b"D", own_ident(), {{"exit_code": 0, "value": None, "error": None}}))
    {"pass" if threads else "time.sleep(60)"}
"""
        assert (await run(executor, FORGE + code)).outcome == "ok"
        left = "import os; pids = open('pids').read().split(); print(len(pids), [os.path.exists(f'/proc/{p}') for p in pids])"
        assert await out(executor, left) == "2 [False, False]\n"

    async def test_code_that_closes_everything_and_sleeps_ends_by_the_deadline(self, make_executor):
        executor = await make_executor(timeout=3)
        result = await run(
            executor, "import os, time; print('begun', flush=True); os.closerange(3, 1000); time.sleep(60)"
        )
        assert short_result(result) == ("timeout", 124, "begun\n\n Timeout")

    async def test_code_that_floods_its_socket_delays_nobody(self, make_executor):
        executor = await make_executor(timeout=3)
        flood = FORGE + "    while True: os.write(control_socket(), frame(b'?', 1, {'x': 'y' * 100000}))\n"
        flooding = asyncio.ensure_future(run(executor, flood))
        await asyncio.sleep(0.5)
        executor.sandbox.timeout = 30
        assert await out(executor, "print('meanwhile')") == "meanwhile\n"
        # The deadline's signal can cut a frame short, and what follows is garbage.
        assert (await flooding).outcome in {"timeout", "crashed"}

    async def test_code_that_kills_other_processes_again_and_again(self, exposed):
        code = """
            import os, time
            until = time.monotonic() + 1
            while time.monotonic() < until:
                try: os.kill(-1, 9)
                except ProcessLookupError: pass
            print('done')
        """
        assert await out(exposed, code) == "done\n"
        assert await out(exposed, "print('next')") == "next\n"
