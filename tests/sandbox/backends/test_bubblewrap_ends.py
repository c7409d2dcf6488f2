"""How bubblewrap sandboxes end, and that nothing is left of them, however they do; and where none can be started."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from autogen_codeact.executors import (
    BubblewrapCommandLineCodeExecutor,
    SandboxStartError,
    SandboxUnavailable,
)
from tests.sandbox.bubblewrapped import SYSTEM_PYTHON, open_folder
from tests.sandbox.pool.conftest import nothing_is_left
from tests.sandbox.sandboxes import out

pytestmark = pytest.mark.usefixtures("bubblewrap", "nothing_is_left")


__all__ = ["nothing_is_left"]  # a fixture


class TestEnd:
    async def test_does_not_end_with_the_thread_that_started_it(self):
        executor = BubblewrapCommandLineCodeExecutor()
        starter = threading.Thread(target=lambda: asyncio.run(executor.start()))
        starter.start()
        await asyncio.to_thread(starter.join)
        await asyncio.sleep(0.1)
        assert await out(executor, "print(1)") == "1\n"
        await executor.stop()


class TestFailedStart:
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root's sandboxes belong to another user")
    async def test_does_not_start_with_a_folder_that_its_user_can_not_reach(self, tmp_path):
        (tmp_path / "closed").mkdir(mode=0o700)
        (tmp_path / "closed" / "inner").mkdir()
        with pytest.raises(SandboxStartError, match="must be able to reach this path"):
            await BubblewrapCommandLineCodeExecutor(readable=[tmp_path / "closed" / "inner"]).start()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root's sandboxes belong to another user")
    async def test_does_not_start_with_a_bound_folder_of_root(self):
        with open_folder() as folder:
            with pytest.raises(SandboxStartError, match="the workspace is not writable for user 65534"):
                await BubblewrapCommandLineCodeExecutor(bind_dir=folder).start()
            os.chown(folder, 12345, 12345)
            async with BubblewrapCommandLineCodeExecutor(bind_dir=folder) as executor:
                await out(executor, "open('made', 'w').write('x')")
            assert (folder / "made").stat().st_uid == 12345


def fake(folder: Path, script: str) -> str:
    """A PATH that begins with a bwrap of our own."""
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


# What bubblewrap 0.8.0 said in a container with Docker's own seccomp profile.
REFUSAL = (
    "bwrap: No permissions to create new namespace, likely because the kernel does not allow "
    "non-privileged user namespaces. See <https://deb.li/bubblewrap>."
)


class TestRefusal:
    async def test_is_refused_where_namespaces_are_forbidden(self, monkeypatch):
        with open_folder() as folder:
            monkeypatch.setenv("PATH", fake(folder, f'echo "{REFUSAL}" >&2; exit 1'))
            with pytest.raises(SandboxUnavailable, match="does not let bubblewrap make a sandbox") as caught:
                await BubblewrapCommandLineCodeExecutor().start()
        assert REFUSAL in str(caught.value)
        assert "or use Docker" in str(caught.value)

    async def test_is_refused_by_a_bubblewrap_that_is_too_old(self, monkeypatch):
        with open_folder() as folder:
            monkeypatch.setenv("PATH", fake(folder, 'echo "bwrap: Unknown option --disable-userns" >&2; exit 1'))
            with pytest.raises(SandboxUnavailable, match=r"too old .* version 0\.8 or later is needed"):
                await BubblewrapCommandLineCodeExecutor().start()

    def test_is_refused_where_the_kernel_allows_no_more_namespaces(self):
        code = (
            "import asyncio\nfrom autogen_codeact.executors import BubblewrapCommandLineCodeExecutor as Executor\n"
            "try:\n    asyncio.run(Executor().start())\nexcept ConnectionError as error:\n    print(type(error).__name__, error)"
        )
        inner = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "sh", "-c", inner, "sh", sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=50,
            check=True,
        )
        assert done.stdout.startswith(
            "SandboxUnavailable this machine does not let bubblewrap make a sandbox (bwrap: Creat"
        )
        assert "user.max_user_namespaces above 0" in done.stdout


class TestWithoutUnshare:
    async def test_the_number_of_files_is_not_limited_and_a_warning_is_logged(self, monkeypatch, caplog):
        monkeypatch.setattr("codeact_sandbox.backends.bubblewrap.launcher.TOOLS", "/nowhere")
        caplog.set_level("WARNING", logger="codeact_sandbox")
        async with BubblewrapCommandLineCodeExecutor(python=str(SYSTEM_PYTHON)) as executor:
            assert await out(executor, "df --output=size /workspace | tail -1", language="sh") == "   262144\n"
            # The rest holds all the same.
            assert await out(executor, "id -u; mkdir /usr/x 2>/dev/null || echo no", language="sh") == "65534\nno\n"
        assert "the number of files in a bubblewrap sandbox is not bounded" in caplog.text
