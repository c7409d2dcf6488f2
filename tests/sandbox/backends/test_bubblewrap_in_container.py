"""Bubblewrap in a real container: refused in one as engines make them, and at work in one that allows it."""

import sys
from contextlib import closing
from pathlib import Path

import pytest

from codeact_sandbox.backends.docker.engine import connect
from tests.sandbox.backends.filtered import run_as_root

pytestmark = pytest.mark.more

ROOT = Path(__file__).parents[3]
ATTEMPT = """
import asyncio
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, SandboxUnavailable
from codeact_sandbox.backends.bubblewrap.launcher import check_bubblewrap
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

async def main():
    async with BubblewrapCommandLineCodeExecutor() as executor:
        code = CodeBlock(code="import os; print(os.getuid(), os.getpid() > 1)", language="python")
        print((await executor.execute_code_blocks([code], CancellationToken())).output)

for attempt in (check_bubblewrap, lambda: asyncio.run(main())):
    try:
        attempt()
    except SandboxUnavailable as error:
        print("refused:", error)
"""


def in_container(*, seccomp: bool, system_paths: bool) -> str:
    """Run the attempt as root in a container that has this host's programs and this project, all read-only."""
    shown = {"/usr", sys.prefix, sys.base_prefix, str(ROOT)}
    with closing(connect()) as client:
        host = client.create_host_config(
            binds=[f"{folder}:{folder}:ro" for folder in sorted(shown)],
            network_mode="none",
            security_opt=None if seccomp else ["seccomp=unconfined", "apparmor=unconfined"],
        )
        if not system_paths:  # what docker's command line makes of systempaths=unconfined
            host |= {"MaskedPaths": [], "ReadonlyPaths": []}
        return run_as_root(client, [sys.executable, "-c", ATTEMPT], host)


@pytest.mark.usefixtures("bubblewrap", "sandbox_image")
class TestInContainer:
    @pytest.mark.parametrize("seccomp", [True, False], ids=["by default", "with its system paths masked"])
    def test_is_refused_by_default(self, seccomp: bool) -> None:
        said = in_container(seccomp=seccomp, system_paths=True)
        refused = [line for line in said.splitlines() if line.startswith("refused: ")]
        assert len(refused) == 2, said
        for line in refused:
            assert line.startswith("refused: this machine does not let bubblewrap make a sandbox (bwrap: ")
            assert line.endswith("; a container must allow them too; or use Docker")

    def test_works_where_the_container_allows_it(self) -> None:
        said = in_container(seccomp=False, system_paths=False)
        assert "refused" not in said
        assert "65534 True\n" in said
