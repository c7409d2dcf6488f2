"""llm-sandbox with Docker; runs in an environment with its newest release."""

import os

from llm_sandbox import SandboxBackend, SandboxSession

from .arm import BlockingArm


class Docker(BlockingArm):
    """Its Python session, in our image; its set-up, which needs a network, has been done in the image."""

    languages = ("python",)

    def start_now(self):
        self.session = SandboxSession(
            backend=SandboxBackend.DOCKER,
            lang="python",
            image=os.environ["BENCH_IMAGE"],
            keep_template=True,
            skip_environment_setup=True,
            runtime_configs={"command": "sleep infinity"},
        )
        self.session.open()

    def run_now(self, language, code):
        # It gives a terminal's line ends.
        return self.session.run(code).stdout.replace("\r\n", "\n")

    def stop_now(self):
        self.session.close()


ARMS = {"llm-sandbox Docker": Docker}
PROBES = {}
