"""microsandbox, a virtual machine for each sandbox; runs in an environment with its newest release. Needs KVM that works."""

import os
import uuid

from microsandbox import Sandbox

from .variant import Variant


class Machine(Variant):
    """A virtual machine with the files of the libraries' image as its root; each block is a process, as `exec` runs them."""

    languages = ("python",)

    async def start(self):
        self.sandbox = await Sandbox.create(f"board-{uuid.uuid4().hex}", image=os.environ["BENCH_ROOT"], replace=True)

    async def run(self, language, code):
        return (await self.sandbox.exec("python3", ["-c", code])).stdout_text

    async def stop(self):
        await self.sandbox.stop()


VARIANTS = {"microsandbox": Machine}
PROBES = {}
