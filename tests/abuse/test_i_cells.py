"""Part I, cases 40 to 44: what notebook cells can do besides Python: commands, magics, tasks, and names of the shell."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.runner.local_runner import LocalRunner
from tests.sandbox.runner.test_runner_old_python import needs_namespaces

from .subject import SUBJECTS, Subject, in_sessions

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


@in_one_session
async def test_i40_a_command_magic_or_task_that_never_ends_is_stopped_at_the_deadline(subject: Subject) -> None:
    await subject.out("kept = 5")
    for code in ENDLESS:
        result = await subject.run(code, timeout=0.4)
        assert (result.outcome, result.state) == ("timeout", "restored"), (code, result)
        assert await subject.out("kept") == "5\n"


@in_sessions
async def test_i41_a_fork_bomb_in_a_command_ends_with_its_cell(subject: Subject) -> None:
    await subject.out("kept = 5")
    result = await subject.run("!bomb() { bomb | bomb & }; bomb; sleep 60", timeout=1.5)
    assert result.state in ("kept", "restored"), result
    assert await subject.out("kept") == "5\n"
    assert await subject.out("!echo on") == "on\n"


@in_one_session
async def test_i42_names_of_cancelled_tasks_are_few_short_and_printable(subject: Subject) -> None:
    await subject.out(TASKS)
    result = await subject.run("import os; os._exit(1)")
    assert (result.outcome, result.state) == ("crashed", "restored")
    (note,) = [note for note in result.notes if "asyncio" in note]
    assert note.isprintable()
    assert note.count("longlong") <= 250
    assert len(note) < 1200


@in_one_session
async def test_i43_a_session_survives_that_its_cells_replace_the_shell_and_asyncio(subject: Subject) -> None:
    await subject.start()
    await subject.out("import asyncio; task = asyncio.create_task(asyncio.sleep(60))")
    await subject.out(REPLACED)
    assert await subject.out("7") == "7\n"
    result = await subject.run("import os; os._exit(1)")
    assert (result.outcome, result.state) == ("crashed", "restored")
    assert await subject.out("8") == "8\n"
    assert (await subject.run("await asyncio.sleep(0)")).outcome == "error"
    assert await subject.out("!echo on") == "on\n"


@needs_namespaces
def test_i44_a_planted_extension_or_module_runs_only_as_code_of_its_cell(ipython: LocalRunner) -> None:
    """It is imported in the session, within the deadline of the cell that names it, and not when IPython is loaded."""
    files = {
        "traitlets.py": "raise SystemExit(3)",
        "IPython.py": "raise SystemExit(3)",
        "planted.py": "def load_ipython_extension(shell):\n    while True: pass",
    }
    for name, text in files.items():
        ipython.run(f"open({name!r}, 'w').write({text!r})")
    result, output = ipython.run("kept = 5\n!echo loaded", timeout=20)
    assert (result["outcome"], output) == ("ok", "loaded\n")
    result, _ = ipython.run("%load_ext planted", timeout=0.5)
    assert (result["outcome"], result["state"]) == ("timeout", "restored")
    result, _ = ipython.run("%timeit -n 1 -r 1 while True: pass", timeout=0.5)
    assert (result["outcome"], result["state"]) == ("timeout", "restored")
    result, output = ipython.run("kept")
    assert (result["outcome"], output) == ("ok", "5\n")
