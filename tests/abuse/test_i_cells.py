"""Part I, cases 40 to 44: what notebook cells can do besides Python: commands, magics, tasks, and names of the shell."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.runner.local_runner import LocalRunner

from .subject import SUBJECTS, Subject

in_one_session = pytest.mark.parametrize(
    "kind", [kind for kind in SUBJECTS if (kind.engine, kind.mode) == ("bubblewrap", "session")], ids=str, indirect=True
)
ENDLESS = [
    "%%time\nwhile True: pass",
    "!sleep 60",
    "%%bash\nsleep 60 & sleep 60",
    "import asyncio\nawait asyncio.gather(asyncio.sleep(60), asyncio.to_thread(__import__('time').sleep, 60))",
]
# A name that would move the cursor, and more tasks than a note can name.
TASKS = """
    import asyncio
    async def wait(): await asyncio.sleep(60)
    wait.__qualname__ = "\\x1b[2J\\n" + "long" * 1000
    waiting = [asyncio.create_task(wait()) for _ in range(200)]
    await asyncio.sleep(0)
"""
REPLACED = """
    import asyncio, builtins, sys
    In = Out = _ = __ = None
    builtins.get_ipython = builtins.input = sys.breakpointhook = None
    asyncio.all_tasks = asyncio.Future = asyncio.set_event_loop = None
"""


@pytest.fixture
def ipython(tmp_path: Path) -> Iterator[LocalRunner]:
    """A session with IPython; the sandboxes of this suite have none."""
    pytest.importorskip("IPython")
    with LocalRunner(sys.executable, tmp_path, mode="session") as runner:
        runner.greet()
        yield runner


# Case I40.
@in_one_session
async def test_a_command_magic_or_task_that_never_ends_is_stopped_at_the_deadline(subject: Subject) -> None:
    await subject.out("kept = 5")
    for code in ENDLESS:
        result = await subject.run(code, timeout=0.4)
        assert (result.outcome, result.state) == ("timeout", "restored"), (code, result)
        assert await subject.out("kept") == "5\n"
