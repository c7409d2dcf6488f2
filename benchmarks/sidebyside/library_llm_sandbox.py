"""llm-sandbox with Docker; runs in an environment with its newest release."""

import os

from llm_sandbox import SandboxBackend, SandboxSession

from .variant import BlockingVariant


class Docker(BlockingVariant):
    """Its Python session, in our image; the image already contains its set-up, which needs a network."""

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
        # Its output has the line ends of a terminal.
        return self.session.run(code).stdout.replace("\r\n", "\n")

    def stop_now(self):
        self.session.close()


VARIANTS = {"llm-sandbox Docker": Docker}
PROBES = {}
