"""With `checkpoint="adaptive"` a checkpoint that is dear guards several blocks, and a rollback says how far back it went."""

import asyncio
import re

import pytest
import pytest_asyncio

from autogen_codeact.executors import DockerCommandLineCodeExecutor, ExecutionResult, Limits

from .conftest import MakeExecutor
from .sandboxes import out, run

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def loop() -> None:
    """Make the loop that these tests share before anybody counts descriptors."""


ROOM = Limits(memory="1g")
CRASH = "import os; os._exit(1)"
# Each page has to be copied, if a checkpoint shares it.
TOUCH = "heap[::4096] = bytes(len(heap[::4096]))"
ATTEMPTS = 10


async def go_back_further(executor: DockerCommandLineCodeExecutor) -> tuple[ExecutionResult, list[int], int]:
    """Have a block fail whose checkpoint has guarded others, too.

    On a busy machine blocks may run for so long that every checkpoint is worth its price.

    Returns:
        Its result, the numbers of the blocks that had done something by then, and of one shell block.
    """
    await out(executor, "import os; blocks, heap = [], bytearray(200 << 20); os.environ['PYTHON_SAYS'] = 'early'")
    numbers = []
    for _ in range(ATTEMPTS):
        for code in (TOUCH, "os.environ['PYTHON_SAYS'] = 'late'"):
            result = await run(executor, code)
            assert result.outcome == "ok"
            numbers.append(result.number)
            assert await out(executor, f"blocks.append({result.number})") == ""
        shell = await run(executor, "cd /tmp; export SHELL_SAYS=late", "sh")
        failed = await run(executor, "blocks.append('failed')\n" + CRASH)
        assert (failed.outcome, failed.state, failed.number) == ("crashed", "restored", shell.number + 1)
        if failed.restored_before < failed.number:
            return failed, numbers, shell.number
    pytest.fail(f"each of {ATTEMPTS} rollbacks went back by one block")


class TestARollback:
    async def test_takes_back_what_it_says(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", checkpoint="adaptive", limits=ROOM)
        failed, numbers, shell = await go_back_further(executor)
        before = failed.restored_before
        assert failed.notes == (
            f"The session is as it was before block {before}; what blocks {before} to {failed.number} did to its variables, "
            "directory and environment is lost.",
            "Files, threads and subprocesses are not restored.",
        )
        # The block that notes a number is the one after that.
        assert await out(executor, "blocks") == f"{[number for number in numbers if number + 1 < before]}\n"
        assert before <= shell
        where = "pwd; echo $PYTHON_SAYS ${SHELL_SAYS-nothing}"
        python = "print(os.getcwd()); print(os.environ['PYTHON_SAYS'], os.environ.get('SHELL_SAYS', 'nothing'))"
        assert await out(executor, where, "sh") == await out(executor, python)
        if before <= numbers[0] + 2:
            assert await out(executor, where, "sh") == "/workspace\nearly nothing\n"
        # And on from there.
        on = await run(executor, "blocks.append('on')")
        again = await run(executor, CRASH)
        assert again.state == "restored"
        assert await out(executor, "'on' in blocks") == f"{again.restored_before > on.number}\n"

    async def test_of_a_small_session_goes_back_by_one_block(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", checkpoint="adaptive")
        for number in range(5):
            await out(executor, f"x = {number}")
        states = []
        for _ in range(ATTEMPTS):
            failed = await run(executor, "x = 'lost'\n" + CRASH)
            states.append(failed.restored_before == failed.number)
            assert (await out(executor, "x")) == "4\n" or not states[-1]
        # A machine that is busy beyond measure makes even a small one dear.
        assert sum(states) > ATTEMPTS / 2

    async def test_to_a_checkpoint_that_was_asked_for_is_exact(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", checkpoint="adaptive", limits=ROOM)
        await out(executor, "heap, blocks = bytearray(200 << 20), []")
        await out(executor, TOUCH)
        await out(executor, "blocks.append(1)")
        await executor.checkpoint()
        await out(executor, "blocks.append(2)")
        await executor.rollback()
        failed = await run(executor, "blocks.append(3)\n" + CRASH)
        assert (failed.state, failed.restored_before) == ("restored", failed.number)
        assert await out(executor, "blocks") == "[1]\n"


class TestACheckpointThatStays:
    async def test_is_taken_anew_when_it_has_been_killed(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", checkpoint="adaptive", limits=ROOM)
        await out(executor, "import os; heap = bytearray(200 << 20)")
        await out(executor, TOUCH + "; x = 1")
        await out(executor, "os.kill(-1, 9)")
        await asyncio.sleep(0.2)
        failed = await run(executor, "x = 2\n" + CRASH)
        assert (failed.state, failed.restored_before) == ("restored", failed.number)
        assert await out(executor, "x") == "1\n"

    async def test_is_dropped_and_said_when_memory_is_short(self, make_executor: MakeExecutor) -> None:
        executor = await make_executor(mode="session", checkpoint="adaptive", limits=Limits(memory="600m"))
        await out(executor, "heap = bytearray(b'x' * (150 << 20))")
        await out(executor, TOUCH)
        await out(executor, "more = b'x' * (150 << 20)")
        result = await run(executor, "heap[::4096] = b'y' * len(heap[::4096]); heap[0]")
        assert (result.outcome, result.value, result.state) == ("ok", "121", "kept")
        large = "the session uses nearly half of the memory limit"
        assert result.notes == (
            f"No checkpoint is kept, so a block that fails now loses the session's variables: {large}.",
        )


async def test_another_word_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("checkpoint is True, False or 'adaptive', not 'often'")):
        DockerCommandLineCodeExecutor(mode="session", checkpoint="often")  # type: ignore[arg-type]


@pytest.mark.parametrize("checkpoint", [True, False, "adaptive"])
async def test_the_config_has_it(checkpoint: object) -> None:
    executor = DockerCommandLineCodeExecutor(mode="session", checkpoint=checkpoint)  # type: ignore[arg-type]
    config = executor.dump_component()
    assert config.config["checkpoint"] == checkpoint
    assert DockerCommandLineCodeExecutor.load_component(config).dump_component() == config
