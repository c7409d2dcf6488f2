"""What every executor promises of the sandbox around the code, from its start to its stop."""

import asyncio
import functools
import json
import os
import socket
import textwrap
import threading
from pathlib import Path

import pytest
import pytest_asyncio
from autogen_core.code_executor import CodeExecutor

from autogen_codeact.executors import Limits, SandboxDied, SandboxNotStarted
from codeact_sandbox.types.result import MEMORY_LINES
from tests.abuse.canaries import host_addresses
from tests.cases import case
from tests.sandbox.backends import privileged
from tests.sandbox.backends.filtered import run as run_without_filter
from tests.sandbox.backends.filtered import run_here
from tests.sandbox.contract.conftest import ON_BUBBLEWRAP
from tests.sandbox.sandboxes import out, run, run_past_oom

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT_THE_START = {"environment": {"GIVEN": "yes"}, "preload": ["decimal"]}
"""Options of tests that share a sandbox."""


def running(command):
    """Shell code that shows each process with this command line."""
    return f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o '[{command[0]}]{command[1:]}'; exit 0"


async def seen(executor, code):
    """What the code prints as JSON."""
    return json.loads(await out(executor, code))


@pytest.fixture(scope="module")
def without_a_filter(backend):
    """The control: what comes of the same calls beside the sandbox, as root and without a filter."""
    place = backend.fixture.removesuffix("_image").replace("sandbox", "docker")
    found = json.loads(privileges(place))
    return {
        name: outcome
        for name, outcome in found.items()
        if place == "docker" or name not in privileged.NOT_IN_BUBBLEWRAP
    }


@functools.cache
def privileges(place):
    """What comes of the calls in one of the places."""
    return run_without_filter(place, privileged.SOURCE, filtered=False)


class TestIsolation:
    async def test_code_has_no_privileges(self, executor):
        code = """
            import json, os
            lines = open("/proc/self/status").read().splitlines()
            values = dict(line.split(":", 1) for line in lines)
            print(json.dumps([os.getuid(), os.getgid(), *(int(values[name], 16) for name in (
                "CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp"))]))
        """
        assert await seen(executor, code) == [65534, 65534, 0, 0, 0, 1, 2]

    async def test_code_has_no_network(self, executor):
        with socket.create_server(("0.0.0.0", 0)) as listener:
            near = [(address, listener.getsockname()[1]) for address in {"127.0.0.1", *host_addresses()}]
            code = textwrap.dedent(f"""
                import json, socket
                def attempt(address):
                    with socket.socket() as outwards:
                        outwards.settimeout(3)
                        return outwards.connect_ex(address) == 0
                names = [name for _, name in socket.if_nameindex()]
                near = [attempt(address) for address in {near}]
                print(json.dumps([names, near, attempt(("192.0.2.1", 80)), attempt(("169.254.169.254", 80))]))
            """)
            assert await seen(executor, code) == [["lo"], [False] * len(near), False, False]
            # The control: the same code, on the host, reaches what listens there.
            control = code.replace('attempt(("192.0.2.1", 80)), attempt(("169.254.169.254", 80))', "None")
            assert json.loads(await asyncio.to_thread(run_here, control))[1] == [True] * len(near)

    async def test_system_files_can_not_be_changed(self, executor) -> None:
        for path in ["/", "/usr", "/etc", "/bin", "/usr/lib/python3"]:
            with case(path):
                result = await run(executor, f"open('{path}/planted', 'w')")
                assert result.error is not None
                assert result.error.type in ("OSError", "PermissionError")

    async def test_writable_folders_can_be_written(self, executor) -> None:
        for path in ["/workspace", "/tmp", "~"]:
            with case(path):
                await out(executor, f"import os; open(os.path.expanduser('{path}/own'), 'w').write('x')")

    async def test_environment_of_the_host_is_not_visible(self, make, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-987")
        executor = await make(**AT_THE_START)
        assert await out(executor, "env", "sh") != ""
        assert "canary" not in await out(executor, "env; cat /proc/*/environ 2>/dev/null || true", "sh")
        assert await out(executor, "import os; print(os.environ['GIVEN'])") == "yes\n"

    async def test_supervisor_can_not_be_inspected(self, executor) -> None:
        for name in ["environ", "mem", "fd/0", "maps"]:
            with case(name):
                result = await run(executor, f"open('/proc/1/{name}', 'rb').read(1)")
                assert result.error is not None
                assert result.error.type == "PermissionError"

    async def test_supervisor_survives_signals(self, executor):
        await run(executor, "kill -9 1; kill -15 1; kill -11 1; exit 0", "sh")
        assert await out(executor, "print('next')") == "next\n"

    async def test_code_can_not_gain_privileges(self, executor, without_a_filter):
        refused = await seen(executor, privileged.SOURCE)
        assert len(refused) == 9
        assert set(refused.values()) <= privileged.REFUSALS, refused
        assert {name for name, outcome in without_a_filter.items() if outcome != "ok"} == set(), without_a_filter
        assert set(refused) - set(without_a_filter) <= privileged.NOT_IN_BUBBLEWRAP

    async def test_sandboxes_do_not_see_each_other(self, backend, executor, make):
        other = await make()
        await out(other, "touch /tmp/neighbour /dev/shm/neighbour; sleep 62 >/dev/null 2>&1 &", "sh")
        strangers = f"ls /tmp /dev/shm | grep neighbour; {running('sleep 62')}"
        assert await out(other, strangers, "sh") == (
            # In process mode neither processes nor shared memory outlive their block.
            "neighbour\nneighbour\nsleep 62\n" if backend.session else "neighbour\n"
        )
        assert await out(executor, strangers, "sh") == ""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def small(backend):
    """One with little room, which is reached again and again."""
    limits = Limits(memory="200m", workspace="4m", tmp="4m", files=200, pids=60)
    async with backend.make(limits=limits) as started:
        yield started


class TestLimits:
    async def test_processes_are_bounded_and_the_sandbox_recovers(self, backend, small):
        code = """
            import os, time
            made = []
            try:
                while len(made) < 500:
                    if not (pid := os.fork()): time.sleep(60)
                    made.append(pid)
            except BlockingIOError:
                pass
            print(len(made))
        """
        assert 20 < int(await out(small, code)) < 60
        assert await out(small, "print('next')") == "next\n"
        if backend.session:  # where they outlive their block
            await out(small, "for pid in made: os.kill(pid, 9); pid = os.waitpid(pid, 0)")

    async def test_open_files_are_bounded(self, executor):
        result = await run(executor, "held = []\nwhile True:\n    held.append(open('/dev/null'))")
        assert result.error is not None
        assert "Too many open files" in result.error.message
        assert await out(executor, "held = None; print('next')") == "next\n"

    async def test_files_are_bounded_in_size_and_number(self, small) -> None:
        for path in ["/workspace", "/tmp"]:
            with case(path):
                large = f"try:\n    open('{path}/large', 'wb').write(bytes(8 << 20))\nfinally:\n    os.remove('{path}/large')"
                many = f"try:\n    for n in range(1000): open(f'{path}/{{n}}', 'x').close()\nfinally:\n"
                many += (
                    f"    for name in os.listdir('{path}'):\n        if name.isdigit(): os.remove(f'{path}/{{name}}')"
                )
                for code in (large, many):
                    result = await run(small, f"import os\n{code}")
                    assert result.error is not None
                    assert "No space left" in result.error.message
                assert await out(small, "print('next')") == "next\n"

    async def test_memory_is_bounded(self, backend, small):
        backend.require_memory_group()
        result = await run(small, "x = bytearray(500 << 20)")
        assert (result.outcome, result.exit_code) == ("oom", 137)
        assert await out(small, "print('next')") == "next\n"

    async def test_a_session_that_has_most_of_its_memory_is_restored(self, backend):
        backend.require_memory_group()
        if not backend.session:
            return
        async with backend.make(limits=Limits(memory="300m", workspace="4m", tmp="4m")) as executor:
            await out(executor, "heap = bytearray(b'x') * (160 << 20)")
            for code in (
                "1",
                "more = []\nwhile True: more.append(bytearray(1 << 20))",
                "heap[::4096] = b'y' * len(heap[::4096])",
            ):
                result = await run(executor, code)
                assert not [note for note in result.notes if "No checkpoint" in note], result
                if code != "1":
                    assert (result.outcome, result.state) == ("oom", "restored"), result
                    assert result.output == MEMORY_LINES["restored"]
            assert await out(executor, "len(heap) >> 20, heap[0]") == "(160, 120)\n"

    async def test_a_child_that_takes_too_much_memory_dies_alone(self, backend, small):
        backend.require_memory_group()
        code = (
            "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'bytearray(500 << 20)']).returncode)"
        )
        result = await run_past_oom(small, code)
        assert (result.outcome, result.output, result.state) == ("ok", "-9\n", "kept"), result

    async def test_there_are_no_core_files(self, executor):
        assert await out(executor, "ulimit -Hc", "bash") == "0\n"


@ON_BUBBLEWRAP
class TestPersistence:
    async def test_variables_persist_in_a_session_only(self, backend, executor):
        await out(executor, "remembered = 1")
        assert await out(executor, "print('remembered' in globals())") == f"{backend.session}\n"

    async def test_value_of_the_last_expression_is_shown_in_a_session_only(self, backend, executor):
        assert (await run(executor, "6 * 7")).value_repr == ("42" if backend.session else None)

    async def test_effects_before_a_failure_persist_in_a_session(self, backend, executor):
        await run(executor, "half = 1\nraise ValueError")
        assert await out(executor, "print(globals().get('half'))") == ("1\n" if backend.session else "None\n")

    async def test_killed_block_loses_no_state(self, backend, executor) -> None:
        for code in ["import time; time.sleep(60)", "import os; os.abort()"]:
            with case(code):
                await out(executor, "before = 1")
                executor.sandbox.timeout = 3
                result = await run(executor, f"before = 2\n{code}")
                executor.sandbox.timeout = 30
                assert result.state == ("restored" if backend.session else "kept")
                assert await out(executor, "print(globals().get('before'))") == ("1\n" if backend.session else "None\n")

    async def test_directory_and_exported_variables_persist_in_a_session_only(self, backend, executor):
        await out(executor, "cd /tmp; export MARK=set", "sh")
        code = "import os; print(os.getcwd(), os.environ.get('MARK'))"
        assert await out(executor, code) == ("/tmp set\n" if backend.session else "/workspace None\n")
        await out(executor, "cd /workspace; unset MARK", "sh")

    async def test_processes_persist_in_a_session_only(self, backend, executor):
        await out(executor, "import subprocess; p = subprocess.Popen(['setsid', 'sleep', '63'])")
        code = "import glob; print(sum(b'sleep\\x0063' in open(p, 'rb').read() for p in glob.glob('/proc/[0-9]*/cmdline')))"
        assert await out(executor, code) == ("1\n" if backend.session else "0\n")
        if backend.session:
            await out(executor, "p.kill(); p = p.wait()")

    async def test_files_persist(self, executor):
        await out(executor, "open('kept.txt', 'w').write('x'); open('/tmp/kept.txt', 'w').write('x')")
        assert await out(executor, "ls kept.txt /tmp/kept.txt", "sh") == "/tmp/kept.txt\nkept.txt\n"

    async def test_checkpoint_needs_a_session(self, backend, executor):
        if not backend.session:
            with pytest.raises(ValueError, match="mode='session'"):
                await executor.checkpoint()
            return
        await out(executor, "x = 1")
        await executor.checkpoint()
        await out(executor, "x = 2")
        await executor.rollback()
        assert await out(executor, "print(x)") == "1\n"


class TestLifecycle:
    async def test_restart_brings_a_new_sandbox_with_the_same_files(self, backend, make, tmp_path):
        executor = await make(fresh=backend.session, work_dir=tmp_path)
        await out(executor, "x = 1; open('kept.txt', 'w').write('k'); open('/tmp/gone.txt', 'w').write('g')")
        await executor.restart()
        code = "import os; print('x' in globals(), os.path.exists('kept.txt'), os.path.exists('/tmp/gone.txt'))"
        assert await out(executor, code) == "False True False\n"

    async def test_any_event_loop_may_use_the_sandbox(self, executor):
        texts = []
        thread = threading.Thread(target=lambda: texts.append(asyncio.run(out(executor, "print('elsewhere')"))))
        thread.start()
        await asyncio.to_thread(thread.join)
        assert texts == ["elsewhere\n"]

    async def test_death_of_the_sandbox_is_an_exception_and_the_next_block_says_what_is_lost(self, backend, make):
        executor = await make(fresh=backend.session)
        executing = asyncio.ensure_future(run(executor, "import time; time.sleep(60)"))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(backend.kill, executor)
        with pytest.raises(SandboxDied):
            await executing
        result = await run(executor, "print('next')")
        assert (result.output, result.state) == ("next\n", "lost")
        assert (await run(executor, "print('again')")).state == "kept"

    async def test_config_makes_an_equal_executor(self, backend):
        executor = backend.make(
            timeout=7, limits=Limits(pids=77), environment={"A": "b"}, allow_domains=["*.ok.example:1"]
        )
        loaded = CodeExecutor.load_component(executor.dump_component())
        assert type(loaded) is backend.kind
        config = loaded.dump_component().config
        assert config == executor.dump_component().config
        assert (config["mode"], config["timeout"], config["limits"]["pids"]) == (backend.mode, 7, 77)
        assert config["environment"] == {"A": "${A}"}  # never the value
        assert config["allow_domains"] == ["*.ok.example:1"]

    async def test_options_of_the_start_take_effect(self, make):
        def double(x: int) -> int:
            """Twice x."""
            return 2 * x

        executor = await make(functions=[double], init_command="echo made > made.txt", **AT_THE_START)
        code = "import sys; from functions import double; print(double(21), open('made.txt').read().strip())"
        assert await out(executor, code) == "42 made\n"

    async def test_first_block_starts_the_sandbox(self, backend):
        executor = backend.make()
        try:
            assert await out(executor, "print('first')") == "first\n"
        finally:
            await executor.stop()

    async def test_stop_may_be_repeated_or_come_before_start_and_nothing_runs_after_it(self, backend):
        executor = backend.make_fresh()
        await executor.stop()
        try:
            await executor.start()
            await executor.start()
            await out(executor, "import subprocess; subprocess.Popen(['setsid', 'sleep', '64321'])")
        finally:
            await asyncio.gather(executor.stop(), executor.stop())
            await executor.stop()
        with pytest.raises(SandboxNotStarted):
            await run(executor, "print(1)")
        left = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                left.append(Path("/proc", name, "cmdline").read_bytes())  # noqa: ASYNC240 - it is no disk
            except OSError:
                continue
        assert not [line for line in left if b"64321" in line]
