"""What cases of broken engines and dead clients share."""

import asyncio
import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import docker.errors
from autogen_core import CancellationToken

from autogen_codeact.executors import ExecutionResult, OutputChunk
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests import processes
from tests.sandbox.sandboxes import block

from .oracles import known_engine

# A block that leaves a trace of each time that it is run.
TRACE = """
    with open("ran", "a") as file:
        file.write("x")
    print("begun", flush=True)
    import time
    time.sleep(40)
"""

CLIENT = """
import asyncio, json, os, sys
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
import autogen_codeact.executors as ours
from codeact_sandbox.backends.docker.leftovers import owner_labels

async def main():
    options = json.loads(sys.argv[1])
    executor = getattr(ours, options.pop("executor"))(**options)
    await executor.start()
    print(json.dumps({"name": getattr(executor, "container_name", None), "labels": owner_labels()}), flush=True)
    for line in iter(sys.stdin.readline, ""):
        code = CodeBlock(code=json.loads(line), language="python")
        result = await executor.execute_code_blocks([code], CancellationToken())
        print(json.dumps({"output": result.output, "state": result.state}), flush=True)
    await executor.stop()

asyncio.run(main())
"""


class Client:
    """Another process that has a sandbox."""

    def __init__(self, process: processes.Process) -> None:
        self.process = process
        said = self.hear()
        self.name: str = said["name"]
        self.labels: dict[str, str] = said["labels"]

    def hear(self) -> dict[str, Any]:
        """What it says next."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the client has ended"
        said: dict[str, Any] = json.loads(line)
        return said

    def send(self, code: str) -> None:
        """Have it run a block; `hear` gives the result."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """End it as the kernel does when memory is short: it has no last word."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)


@contextmanager
def client(
    executor: str = "DockerCommandLineCodeExecutor", *, temporary: Path | None = None, **options: Any
) -> Iterator[Client]:
    """Start a process that starts a sandbox."""
    command = ["-c", CLIENT, json.dumps({"executor": executor, **options})]
    with contextlib.ExitStack() as stack:
        # Not below this process's own folder, where the oracles look for what is left.
        place = temporary or stack.enter_context(tempfile.TemporaryDirectory(prefix="codeact-test-", dir="/tmp"))
        env = {**os.environ, "TMPDIR": str(place)}
        process = stack.enter_context(processes.start(command, env=env))
        try:
            yield Client(process)
        finally:
            process.kill()


Stream = AsyncGenerator[OutputChunk | ExecutionResult, None]


async def begin(executor: SandboxCodeExecutor, code: str = TRACE) -> Stream:
    """Start a block and wait until it has written something; `rest` gives its result."""
    stream = executor.execute_stream([block(code)], CancellationToken())
    await anext(stream)
    return stream


async def rest(stream: Stream) -> ExecutionResult:
    """The result of a block that has begun."""
    *_, last = [piece async for piece in stream]
    assert isinstance(last, ExecutionResult)
    return last


def engine(call: Callable[[Any], Any]) -> Any:
    """Do something to the engine behind the executor's back."""
    with closing(known_engine()) as api:
        return call(api)


def exists(name: str | None) -> bool:
    """Whether there is such a container, in whatever state."""
    with closing(known_engine()) as api:
        try:
            api.inspect_container(name)
        except docker.errors.NotFound:
            return False
        return True


async def eventually(condition: Callable[[], bool], seconds: float = 30) -> float:
    """Wait for something; how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds} s"
        await asyncio.sleep(0.05)
    return time.monotonic() - began
