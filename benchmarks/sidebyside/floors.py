"""Lower bounds: what the parts cost without an executor."""

import asyncio
import contextlib
import io
import subprocess
import sys

from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.stream import DockerStream
from codeact_sandbox.types.options import DEFAULT_IMAGE

from .variant import TIMEOUT_S, Variant

READ_BYTES = 1 << 16


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

    async def start(self):
        await asyncio.to_thread(self._start)

    def _start(self):
        self.client = connect()
        made = self.client.create_container(
            DEFAULT_IMAGE,
            entrypoint=["cat"],
            command=[],
            stdin_open=True,
            detach=False,
            host_config=self.client.create_host_config(network_mode="none", auto_remove=True),
        )
        self.stream = DockerStream(self.client, made["Id"])
        self.client.start(made["Id"])

    async def run(self, language, code):
        loop = asyncio.get_running_loop()
        came = asyncio.Event()
        loop.add_reader(self.stream.read_fd, came.set)
        try:
            self.stream.write(memoryview(code.encode()))
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


VARIANTS = {
    "in-process exec (floor)": InProcess,
    "raw echo over an attached stream (limit)": RawEcho,
    "bare subprocess": Subprocess,
    "docker run --rm": DockerRun,
}
