"""Other OCI runtimes than the engine's own. `TEST_RUNTIME` runs the tests of Docker sandboxes with one of them."""

import pytest

from codeact_sandbox import AsyncSandbox
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.launcher import _for_podman
from codeact_sandbox.types.errors import SandboxStartError


async def test_a_runtime_that_the_engine_does_not_have_says_what_to_do(sandbox_image):
    with pytest.raises(SandboxStartError, match=r"refused to start the sandbox: .*no-such-runtime.*runtime="):
        await AsyncSandbox("docker", runtime="no-such-runtime").start()


@pytest.mark.parametrize("runtime", ["crun", "runsc"])
async def test_a_session_runs_and_is_restored(sandbox_image, runtime):
    with connect() as client:
        if runtime not in client.info()["Runtimes"]:
            pytest.skip(f"the engine has no runtime {runtime}")
    async with AsyncSandbox("docker", runtime=runtime, mode="session", timeout=5) as box:
        await box.run("import os; x = [41]")
        assert (await box.run("os._exit(3)")).state == "restored"
        assert (await box.run("while True: pass", timeout=1)).state == "restored"
        assert (await box.run("x[0] + 1")).value == 42
        assert (await box.run("echo $((6 * 7))", "sh")).output == "42\n"


def test_podman_gets_the_mount_options_that_it_knows():
    docker = "rw,exec,nosuid,nodev,uid=65534,gid=65534,size=1024,nr_inodes=50,mode=0755"
    assert _for_podman(docker) == "rw,exec,nosuid,nodev,size=1024,mode=1777"
