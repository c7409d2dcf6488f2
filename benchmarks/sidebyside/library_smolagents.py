"""smolagents' executors; runs in an environment with its newest release."""

import os
import socket

from smolagents.local_python_executor import LocalPythonExecutor
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import DockerExecutor

from .variant import BlockingVariant


class Docker(BlockingVariant):
    """Jupyter in a container, with our image and, by default, no limits."""

    languages = ("python",)

    def start_now(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.executor = DockerExecutor(
            [],
            AgentLogger(level=LogLevel.OFF),
            port=port,
            image_name=os.environ["BENCH_IMAGE"],
            build_new_image=False,
            container_run_kwargs={
                "command": "python3 -m jupyter kernelgateway --KernelGatewayApp.ip=0.0.0.0 --KernelGatewayApp.port=8888"
            },
        )

    def run_now(self, language, code):
        return self.executor(code).logs

    def stop_now(self):
        self.executor.cleanup()


class Local(BlockingVariant):
    """Its interpreter of Python's syntax tree, in this process: not a sandbox as on this page."""

    languages = ("python",)

    def start_now(self):
        self.executor = LocalPythonExecutor([])
        self.executor.send_tools({})

    def run_now(self, language, code):
        return self.executor(code).logs


VARIANTS = {"smolagents Docker": Docker, "smolagents LocalPythonExecutor (no sandbox)": Local}
PROBES = {}
