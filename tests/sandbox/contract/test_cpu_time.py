"""A block's processor time has a limit of its own, beside that by the clock."""

import pytest
import pytest_asyncio

from autogen_codeact.executors import ExecutionResult, Limits
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.abuse.subject import Kind
from tests.cases import case
from tests.sandbox.contract.conftest import EACH_ONCE, Make
from tests.sandbox.sandboxes import out, run

pytestmark = [pytest.mark.asyncio(loop_scope="module"), EACH_ONCE]

LIMITS = Limits(cpu_seconds=0.3)
EXCEEDED = "the code used more processor time than the 0.3 s that a block may use"
SPIN = "while True: pass"


def check_exceeded(result: ExecutionResult, backend: Kind, *, python: bool = True) -> None:
    assert (result.outcome, result.exit_code) == ("timeout", 124), result
    assert (result.error.type, result.error.message) == ("CpuTimeExceeded", EXCEEDED)
    assert result.state == ("restored" if backend.session and python else "kept")


@pytest_asyncio.fixture(loop_scope="module")
async def limited(make: Make) -> SandboxCodeExecutor:
    """One whose blocks may use little processor time."""
    return await make(timeout=50, limits=LIMITS)


async def test_a_busy_block_is_ended_long_before_its_deadline(limited: SandboxCodeExecutor, backend: Kind) -> None:
    await run(limited, "kept = 1")
    result = await run(limited, "print('partial')\nkept = 2\n" + SPIN)
    check_exceeded(result, backend)
    assert result.output == "partial\n\n Timeout"
    if backend.session:
        assert await out(limited, "kept") == "1\n"
    check_exceeded(await run(limited, "while :; do :; done", "sh"), backend, python=False)
    assert await out(limited, "print('next')") == "next\n"


async def test_each_block_has_its_own_cpu_limit(limited: SandboxCodeExecutor) -> None:
    code = "import time\nend = time.process_time() + 0.11\nwhile time.process_time() < end: pass\nprint('done')"
    for _ in range(3):
        assert await out(limited, code) == "done\n"


async def test_cpu_time_of_all_processes_of_a_block_is_added_up(limited: SandboxCodeExecutor, backend: Kind) -> None:
    for code in [
        "import os\nfor _ in range(3): os.fork()\nwhile True: pass",
        "import subprocess\nwhile True: subprocess.run(['python3', '-S', '-c', 'sum(range(10 ** 6))'])",
        "import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass\nimport time; time.sleep(50)",
    ]:
        with case(code):
            check_exceeded(await run(limited, code), backend)
