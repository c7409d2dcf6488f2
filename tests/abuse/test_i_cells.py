"""Part I, cases 40 to 44: what notebook cells can do besides Python: commands, magics, tasks, and names of the shell."""

import pytest

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


# Case I40.
@in_one_session
async def test_a_command_magic_or_task_that_never_ends_is_stopped_at_the_deadline(subject: Subject) -> None:
    await subject.out("kept = 5")
    for code in ENDLESS:
        result = await subject.run(code, timeout=0.4)
        assert (result.outcome, result.state) == ("timeout", "restored"), (code, result)
        assert await subject.out("kept") == "5\n"
