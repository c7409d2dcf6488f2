"""Part H, case 15: a process that has sandboxes is forked, and killed while its child lives on."""

import json
import os
import signal
import time

import pytest

from tests import processes

from .faults import exists
from .oracles import descendants
from .subject import SUBJECTS

pytestmark = [pytest.mark.usefixtures("docker_engine", "untouched")]

PARENT = """
import asyncio, json, os, sys, time
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
import autogen_codeact.executors as ours

async def main():
    kind, mode = sys.argv[1:3]
    names = {"docker": "DockerCommandLineCodeExecutor", "bubblewrap": "BubblewrapCommandLineCodeExecutor"}
    executor = getattr(ours, names[kind])(mode=mode)
    await executor.start()
    if sys.argv[3] == "pool":
        pool = ours.ExecutorPool(1, backend=kind, mode=mode)
        await pool.start()
        await pool.ready(30)
    child = os.fork()
    if child == 0:
        open(sys.argv[4], "w").close()
        time.sleep(40)
        os._exit(0)
    code = CodeBlock(code="print(6 * 7)", language="python")
    result = await executor.execute_code_blocks([code], CancellationToken())
    print(json.dumps([child, executor.sandbox.client.name, result.output]), flush=True)
    time.sleep(40)

asyncio.run(main())
"""


# Case H15.
@pytest.mark.parametrize("pooled", ["pool", "alone"])
@pytest.mark.parametrize("kind", [SUBJECTS[0], SUBJECTS[3]], ids=str, indirect=True)
def test_a_sandbox_ends_with_its_process_although_a_forked_child_lives_on(kind, pooled, tmp_path):
    """The child had inherited the streams, so that the sandbox never read their end; and the parent's goes on working."""
    marker = tmp_path / "forked"
    command = ["-c", PARENT, kind.engine, kind.mode, pooled, str(marker)]
    with processes.start(command, env=os.environ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the parent has ended"
        child, name, output = json.loads(line)
        sandboxes = [f"/proc/{pid}" for pid in descendants(process.pid) if pid != child]
        try:
            assert output == "42\n"
            until = time.monotonic() + 30
            while not marker.exists():  # the child has begun
                assert time.monotonic() < until, "the child has not begun"
                time.sleep(0.01)
            assert exists(name) if kind.engine == "docker" else sandboxes
            process.kill()
            process.wait(10)
            until = time.monotonic() + 30
            while any(map(os.path.exists, sandboxes)) or (kind.engine == "docker" and exists(name)):
                assert time.monotonic() < until, "the sandbox lives on"
                time.sleep(0.1)
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)
