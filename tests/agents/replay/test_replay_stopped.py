"""Rebuilding that stops early: out of memory or time, cancelled, or with a sandbox that breaks."""

import asyncio
from pathlib import Path

import pytest
from autogen_agentchat.messages import CodeExecutionEvent
from autogen_core import CancellationToken

from autogen_codeact.agents import CodeActAgent, replay
from autogen_codeact.executors import Limits
from tests.agents.codeact import python
from tests.agents.replay.support import Make, contents, run_turn
from tests.agents.support import scripted
from tests.sandbox.sandboxes import out, run

pytestmark = pytest.mark.slow


async def test_a_session_too_large_for_a_checkpoint_is_rebuilt_up_to_there(make: Make) -> None:
    limits = Limits(memory="256m")
    blocks = ["x = 1", "heap = bytearray(205 << 20)", "y = 2"]
    state, _, _ = await run_turn(await make(limits=limits), None, *blocks)
    _, words, printed = await run_turn(await make(limits=limits), state, "print(x, 'heap' in globals(), y)")
    assert "- block 2 was not rebuilt: no checkpoint could be taken (" in words
    assert printed == ["1 False 2\n"]


async def test_rebuilding_ends_in_time(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_SECONDS", 4.0)
    state, _, _ = await run_turn(await make(timeout=2), None, "x = 1")
    slow = {**state["journal"]["entries"][0], "code": "import time\ntime.sleep(60)"}
    state["journal"]["entries"] += [slow] * 50
    _, words, printed = await asyncio.wait_for(run_turn(await make(timeout=2), state, "print(x)"), 50)
    assert "- block 2 was not rebuilt: it ended with `timeout` instead of `ok`\n" in words
    assert "block 20 was not rebuilt: rebuilding had taken 4 s by then\n" in words
    assert printed == ["1\n"]


async def test_a_cancelled_rebuilding_leaves_no_half_made_session(make: Make, work: Path) -> None:
    state, _, _ = await run_turn(
        await make(), None, "x = 1\nimport time\ntime.sleep(1.5)", "open('y.txt', 'w').write('y')\nNone"
    )
    (work / "y.txt").unlink()
    executor = await make()
    agent = CodeActAgent("actor", executor, model_client=scripted(python("print(x)"), "Done."))
    await agent.load_state(state)
    token = CancellationToken()
    rebuilding = asyncio.ensure_future(agent.rebuild_session(token))
    await asyncio.sleep(0.4)
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rebuilding
    # Who uses the executor itself has a sandbox of his own, with the host's files and no others.
    assert (await run(executor, "import os\nprint(os.listdir(), 'x' in globals())")).output == "[] False\n"
    replayed = await agent.rebuild_session()
    assert replayed is not None
    assert replayed.same
    assert await out(executor, "print(x, os.path.exists('y.txt')) if 'os' in globals() else print(x)") == "1\n"
    assert contents(work) == {}


async def test_a_block_that_breaks_the_sandbox_leaves_an_empty_session_and_its_setup(make: Make) -> None:
    state, _, _ = await run_turn(await make(), None, "x = 1", "import time\ntime.sleep(3)")
    executor = await make()
    client = scripted(python("print('x' in globals(), z)"), "Done.")
    agent = CodeActAgent("actor", executor, model_client=client, setup="z = 3")
    await agent.load_state(state)
    rebuilding = asyncio.ensure_future(agent.rebuild_session())
    while executor.starts < 2 or executor.sandbox.blocks < 4:  # noqa: ASYNC110 (it restarts, and runs up to block 2)
        await asyncio.sleep(0.02)
    assert executor.sandbox.client is not None
    await executor.sandbox.client.stop()
    replayed = await rebuilding
    assert replayed is not None
    assert replayed.describe().startswith(
        "The session could not be rebuilt and is empty: its sandbox broke at block 2 (SandboxDied: "
    )
    result = await agent.run(task="Go.")
    assert [m.result.output for m in result.messages if isinstance(m, CodeExecutionEvent)] == ["False 3\n"]
    assert len((await agent.save_state())["journal"]["entries"]) == 3
