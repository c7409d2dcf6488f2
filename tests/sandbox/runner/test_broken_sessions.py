"""What breaks a session costs one block at most, and what it costs is said."""

import pytest
import pytest_asyncio

from autogen_codeact.executors import DockerCommandLineCodeExecutor, Limits
from codeact_sandbox.types.result import last_line
from tests.sandbox.sandboxes import FORGE, out, run, shared_executor, short_result

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOST = "The session's variables are lost; a new, empty session has been started."


small = shared_executor(mode="session", timeout=30, limits=Limits(memory="300m", cpus=0.3))
"""A session with little memory, broken again and again, also by code that never rests."""


attacked = shared_executor(mode="session", timeout=30)
"""The sandbox of `fresh`."""


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(attacked: DockerCommandLineCodeExecutor) -> DockerCommandLineCodeExecutor:
    """A session in which no block has run, with no process of an earlier one."""
    await run(attacked, "kill -9 -1", "sh")
    assert short_result(await run(attacked, "sorted(name for name in globals() if name[0] != '_')")) == (
        "ok",
        0,
        "['In', 'Out']\n",
    )
    return attacked


class TestBrokenSession:
    """Each of these ends the interpreter; the variables of before the block are there again, and it is said."""

    @pytest.mark.parametrize(
        ("code", "outcome", "kind"),
        [
            ("import time; time.sleep(60)", "timeout", None),
            ("import os; os.kill(os.getpid(), 19)", "timeout", None),
            ("import os; os.kill(os.getpid(), 9)", "crashed", "SIGKILL"),
            ("import os; os._exit(5)", "crashed", "EarlyExit"),
            ("import os; os.closerange(0, 1000)", "crashed", "EarlyExit"),
            ("import os, time; os.closerange(3, 1000); time.sleep(60)", "crashed", "ConnectionLost"),
            ("x = []\nwhile True: x.append(b'x' * 10_000_000)", "oom", "OutOfMemory"),
        ],
    )
    async def test(self, small, code, outcome, kind):
        await out(small, "import os; mark = ['set']; os.chdir('/tmp'); os.environ['BEFORE'] = '1'")
        # Dying has time on a busy machine; running out of time needs no more than it takes to print.
        small.sandbox.timeout = 1 if outcome == "timeout" else 30
        result = await run(small, "mark.append('lost'); os.environ['BEFORE'] = '2'; print('partial')\n" + code)
        small.sandbox.timeout = 30
        output = "partial\n" + last_line(result.outcome, result.state)
        assert (result.outcome, result.output, result.state) == (outcome, output, "restored"), result
        assert (result.error.type if result.error else None) == kind
        assert result.notes[-1] == "Files, threads and subprocesses are not restored."
        assert await out(small, "mark, os.getcwd(), os.environ['BEFORE']") == "(['set'], '/tmp', '1')\n"
        assert await out(small, "pwd; echo $BEFORE", "sh") == "/tmp\n1\n"
        # And again, from the interpreter that was asleep.
        result = await run(small, "mark.append('lost'); os._exit(1)")
        assert (result.outcome, result.state) == ("crashed", "restored")
        assert await out(small, "mark") == "['set']\n"

    async def test_session_without_checkpoints_loses_all_but_its_directory_and_environment(self, make_executor):
        executor = await make_executor(mode="session", checkpoint=False)
        await out(executor, "cd /tmp; export PLACE=kept", "sh")
        await out(executor, "import os; mark = os.getcwd()")
        result = await run(executor, "os._exit(1)")
        assert (result.outcome, result.state, result.notes) == ("crashed", "lost", (LOST,))
        assert (await run(executor, "mark")).outcome == "error"
        assert await out(executor, "import os; os.getcwd(), os.environ['PLACE']") == "('/tmp', 'kept')\n"

    async def test_a_large_heap_has_no_checkpoint_and_says_so(self, make_executor):
        executor = await make_executor(mode="session", limits=Limits(memory="300m"))
        large = "what the session and the files in memory use leaves no room for a copy of it"
        warning = f"No checkpoint is kept, so a block that fails now loses the session's variables: {large}."
        assert (await run(executor, "heap = b'x' * (240 << 20)")).notes == ()  # there was one when it began
        assert [(await run(executor, "1")).notes for _ in range(2)] == [(warning,), ()]
        result = await run(executor, "import os; os._exit(1)")
        assert (result.outcome, result.state) == ("crashed", "lost")
        assert result.notes == (f"No checkpoint was kept: {large}.", LOST)
        # The new session is small.
        await out(executor, "mark = 1")
        assert (await run(executor, "import os; os._exit(1)")).state == "restored"


class TestAttacksOnTheSandbox:
    async def test_code_that_kills_its_checkpoint_and_itself_loses_the_session(self, fresh):
        await out(fresh, "mark = 1")
        result = await run(fresh, "import os; os.kill(-1, 9); os._exit(1)")
        assert (result.outcome, result.state) == ("crashed", "lost")
        assert (await run(fresh, "mark")).outcome == "error"
        assert await out(fresh, "'next'") == "'next'\n"
        assert await out(fresh, "echo shell", "sh") == "shell\n"

    async def test_code_that_stops_its_checkpoint_and_crashes_is_restored(self, fresh):
        await out(fresh, "mark = 1")
        result = await run(fresh, "import os; os.kill(-1, 19); os._exit(1)")
        assert (result.outcome, result.state) == ("crashed", "restored")
        assert await out(fresh, "mark") == "1\n"

    @pytest.mark.parametrize(
        "send",
        [
            "frame(b'C', own_ident(), {'pid': [1]})",
            "frame(b'C', own_ident(), {'pid': 1})",
            "frame(b'C', own_ident(), {'pid': os.getpid()})",
            "frame(b'C', own_ident(), {'skipped': 3})",
            "frame(b'C', own_ident(), {'skipped': 'x' * 100000})",
            "frame(b'X', own_ident(), {'pid': 1, 'status': 0})",
        ],
    )
    async def test_forged_checkpoints_do_not_replace_the_true_one(self, fresh, send):
        await out(fresh, FORGE + "\n    mark = 1")
        forge = f"os.write(control_socket(), {send})\n"
        assert await out(fresh, forge + "'done'") == "'done'\n"
        result = await run(fresh, forge + "os._exit(1)")
        assert (result.outcome, result.state) == ("crashed", "restored")
        assert await out(fresh, "mark") == "1\n"

    async def test_worker_that_never_reads_a_large_block_ends_by_the_deadline(self, make_executor):
        executor = await make_executor(mode="session", timeout=3)
        forge = "os.write(control_socket(), frame(b'D', own_ident(), {'exit_code': 0}))"
        await run(
            executor, FORGE + f"    {forge}\n    import time; time.sleep(60)"
        )  # ends by the forged word, while its code goes on
        result = await run(executor, "1\n" + "#" * 8_000_000)
        assert (result.outcome, result.exit_code, result.state) == ("timeout", 124, "lost")
        assert await out(executor, "'next'") == "'next'\n"
