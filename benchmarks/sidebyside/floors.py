"""Lower bounds: what the parts cost without an executor."""

import asyncio
import contextlib
import io
import json
import subprocess
import sys

from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.stream import DockerStream
from codeact_sandbox.types.options import DEFAULT_IMAGE

from .variant import TIMEOUT_S, Variant

READ_BYTES = 1 << 16
# Two processes, as a sandbox needs: one has the stream, the other one runs code that may do anything to itself.
RELAY = """
import json, os, socket, sys
ours, theirs = socket.socketpair()
def serve():
    message, (output,), _, _ = socket.recv_fds(theirs, 65536, 1)
    os.dup2(output, 1)
    os.close(output)
    exec(compile(json.loads(message)["code"], "<block>", "exec"), {"__name__": "__main__"})
    sys.stdout.flush()
    theirs.send(b"done")
def fork():
    pid = os.fork()
    if pid == 0:
        serve()
        while not NEW_PROCESS:
            serve()
        os._exit(0)
    return pid
pid = fork()
for line in sys.stdin.buffer:
    read_end, write_end = os.pipe()
    socket.send_fds(ours, [line], [write_end])
    os.close(write_end)
    ours.recv(16)
    output = os.read(read_end, 65536).decode()
    os.close(read_end)
    sys.stdout.buffer.write(json.dumps({"output": output}).encode() + b"\\n")
    sys.stdout.buffer.flush()
    if NEW_PROCESS:
        os.waitpid(pid, 0)
        pid = fork()
"""


class InProcess(Variant):
    """`exec` in this process: the cost of Python alone."""

    languages = ("python",)

    async def run(self, language, code):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "<block>", "exec"), {"__name__": "__main__"})
        return out.getvalue()


class Subprocess(Variant):
    """A bare interpreter for each block, without a sandbox."""

    def command(self, language, code):
        """Return the command."""
        return [sys.executable if language == "python" else "sh", "-c", code]

    async def run(self, language, code):
        process = await asyncio.create_subprocess_exec(
            *self.command(language, code), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        out, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
        return out.decode()


class DockerRun(Subprocess):
    """`docker run --rm` for each block, without a network."""

    def command(self, language, code):
        interpreter = "python3" if language == "python" else "sh"
        return ["docker", "run", "--rm", "--network=none", "--entrypoint", interpreter, DEFAULT_IMAGE, "-c", code]


class RawEcho(Variant):
    """The answer, sent to `cat` in a container and back over its attached stream: the fastest possible answer."""

    languages = ("echo",)
    program = ("cat",)

    async def start(self):
        await asyncio.to_thread(self._start)

    def _start(self):
        self.client = connect()
        made = self.client.create_container(
            DEFAULT_IMAGE,
            entrypoint=list(self.program),
            command=[],
            stdin_open=True,
            detach=False,
            host_config=self.client.create_host_config(network_mode="none", auto_remove=True),
        )
        self.stream = DockerStream(self.client, made["Id"])
        self.client.start(made["Id"])

    async def run(self, language, code):
        return await self.exchange(code)

    async def exchange(self, line):
        """Send a line, and return the one that comes back."""
        loop = asyncio.get_running_loop()
        came = asyncio.Event()
        loop.add_reader(self.stream.read_fd, came.set)
        try:
            self.stream.write(memoryview(line.encode()))
            back = b""
            while not back.endswith(b"\n"):
                await asyncio.wait_for(came.wait(), TIMEOUT_S)
                came.clear()
                data = self.stream.read(READ_BYTES)
                if data == b"":
                    raise ConnectionError("the container has ended")
                back += data or b""
        finally:
            loop.remove_reader(self.stream.read_fd)
        return back.decode()

    async def stop(self):
        self.stream.close()
        self.client.close()


class RawRelay(RawEcho):
    """Two Python processes in a container, without limits or checks: the one hands each block to the other, which runs it."""

    languages = ("python",)
    new_process = False

    @property
    def program(self):
        return ("python3", "-I", "-S", "-c", f"NEW_PROCESS = {self.new_process}{RELAY}")

    async def run(self, language, code):
        return json.loads(await self.exchange(json.dumps({"code": code}) + "\n"))["output"]


class RawFork(RawRelay):
    """The same, with a process for each block, which is forked while the host reads the last answer."""

    new_process = True


VARIANTS = {
    "in-process exec (floor)": InProcess,
    "raw echo over an attached stream (limit)": RawEcho,
    "raw relay: two bare Python processes (limit)": RawRelay,
    "raw fork: a bare Python process for each block (limit)": RawFork,
    "bare subprocess": Subprocess,
    "docker run --rm": DockerRun,
}
