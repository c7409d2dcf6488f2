"""AutoGen's own executors; runs in an environment with autogen-ext of the newest release."""

import asyncio
import os
import tempfile

from autogen_agentchat.agents import CodeExecutorAgent
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor
from autogen_ext.code_executors.docker_jupyter import DockerJupyterCodeExecutor, DockerJupyterServer
from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

from .autogen_executor import Executor, turn
from .variant import Variant


class Jupyter(Executor):
    """The Jupyter executor with its server in a container; both are created and stopped, as users do."""

    def __init__(self):
        super().__init__(None, ("python",))

    async def start(self):
        # Its start does not wait until the gateway listens, so users must retry.
        self.folder = tempfile.TemporaryDirectory()
        self.server = await asyncio.to_thread(
            lambda: DockerJupyterServer(custom_image_name=os.environ["BENCH_IMAGE"], bind_dir=self.folder.name)
        )
        until = asyncio.get_running_loop().time() + 60
        while True:
            self.executor = DockerJupyterCodeExecutor(self.server, timeout=60)
            try:
                return await self.executor.start()
            except Exception:
                await self.executor.stop()
                if asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(0.05)

    async def stop(self):
        await self.executor.stop()
        await self.server.stop()


def _docker(folder):
    return DockerCommandLineCodeExecutor(image=os.environ["BENCH_IMAGE"], work_dir=folder)


VARIANTS = {
    "autogen-ext Docker command line": lambda: Executor(_docker),
    "autogen-ext Docker Jupyter": Jupyter,
    "autogen-ext local (no sandbox)": lambda: Executor(lambda folder: LocalCommandLineCodeExecutor(work_dir=folder)),
}


async def agent_turn(variant: Variant):
    """Return the seconds of a turn of AutoGen's agent with a started variant."""
    return await turn(CodeExecutorAgent, variant.executor)


PROBES = {"agent turn": agent_turn}
