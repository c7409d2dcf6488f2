"""Objects that all processes of a sandbox share have no reference counts to write; objects of the code are freed as ever."""

import subprocess
import sys

import pytest

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from codeact_sandbox.runner.zygote import zygote
from tests.sandbox.sandboxes import out

IMMORTAL = 2**32 - 1
PROGRAM = """
import sys, weakref
from codeact_sandbox.runner.zygote import zygote

class Kept: pass
class Own: pass
kept = Kept()
before = sys.getrefcount(kept)
count = zygote.make_immortal()
own = Own()
freed = []
weakref.finalize(own, freed.append, True)
del own
text = kept.text = "a"
kept.text += "b" * 100
print(count > 1000, before, sys.getrefcount(kept), sys.getrefcount(Kept), freed, text, len(kept.text))
"""


def test_existing_objects_become_immortal_where_python_knows_that() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=30)
    if zygote.is_possible():
        assert done.stdout == f"True 2 {IMMORTAL} {IMMORTAL} [True] a 101\n"
    else:
        assert done.stdout.startswith("False 2 2 ")


@pytest.mark.asyncio(loop_scope="module")
async def test_sessions_share_modules_and_free_their_own_objects(session: DockerCommandLineCodeExecutor) -> None:
    code = """
        import gc, json, sys, weakref
        class Own: pass
        own, freed = Own(), []
        weakref.finalize(own, freed.append, True)
        del own
        cycle = Own(); cycle.self = cycle
        weakref.finalize(cycle, freed.append, "cycle")
        del cycle
        collected = gc.collect() > 0
        sys.version_info >= (3, 12), sys.getrefcount(json.dumps), sys.getrefcount(Own) < 100, freed
    """
    assert await out(session, code) == f"(True, {IMMORTAL}, True, [True, 'cycle'])\n"
