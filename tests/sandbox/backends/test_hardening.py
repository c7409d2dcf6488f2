"""What the sandbox may do by default: seen from inside, and as the engine has it."""

import json
import uuid
from contextlib import closing
from typing import Any

import pytest

from autogen_codeact.executors import DockerCommandLineCodeExecutor, Limits
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.launcher import LOCALHOST_LABEL
from codeact_sandbox.types.options import DEFAULT_IMAGE
from tests.sandbox.images import build_from
from tests.sandbox.sandboxes import inspect, out, shared_executor

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1024 * 1024


executor = shared_executor(kind=DockerCommandLineCodeExecutor, timeout=20)


def container_of(executor: DockerCommandLineCodeExecutor) -> dict[str, Any]:
    with closing(connect()) as client:
        return inspect(client, executor.container_name)


async def ask(executor: DockerCommandLineCodeExecutor, code: str, language: str = "python") -> Any:
    """Run code that prints JSON."""
    return json.loads(await out(executor, code, language))


class TestInside:
    async def test_resource_limits(self, executor):
        code = """
            import json, resource as r
            print(json.dumps([r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CORE)]))
        """
        assert await ask(executor, code) == [[1024, 1024], [0, 0]]
        assert await ask(executor, "echo [$(ulimit -n), $(ulimit -Hn), $(ulimit -c)]", "bash") == [1024, 1024, 0]


class TestContainerConfiguration:
    # Case 38.
    async def test_container_has_the_default_configuration(self, executor):
        found = container_of(executor)
        host, config = found["HostConfig"], found["Config"]
        expected = {
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "Privileged": False,
            "CapAdd": None,
            "CapDrop": ["ALL"],
            "Memory": Limits().memory_bytes,
            "MemorySwap": Limits().memory_bytes,
            "NanoCpus": 10**9,
            "PidsLimit": 256,
            "AutoRemove": True,
            "IpcMode": "private",
            "PidMode": "",
            "UTSMode": "",
            "PublishAllPorts": False,
            "LogConfig": {"Type": "none", "Config": {}},
            "DeviceRequests": None,
            "ExtraHosts": None,
            "VolumesFrom": None,
            "UsernsMode": "",
            "Links": None,
            "GroupAdd": None,
        }
        assert {key: host[key] for key in expected} == expected
        assert not host["Binds"]
        assert not host["Devices"]
        assert not host["PortBindings"]
        assert {mount["Type"] for mount in found["Mounts"]} <= {"tmpfs"}
        assert host["SecurityOpt"][0] == "no-new-privileges:true"
        assert [option.split("=")[0] for option in host["SecurityOpt"][1:]] == ["seccomp"]
        assert [(limit["Name"], limit["Soft"], limit["Hard"]) for limit in host["Ulimits"]] == [("core", 0, 0)]
        assert host["Tmpfs"] == {
            "/workspace": f"rw,exec,nosuid,nodev,uid=65534,gid=65534,size={256 * MIB},nr_inodes=50000,mode=0755",
            "/tmp": f"rw,exec,nosuid,nodev,size={256 * MIB},nr_inodes=50000,mode=1777",
            "/packages": f"rw,exec,nosuid,nodev,size={256 * MIB},nr_inodes=50000,mode=1777",
        }
        assert (config["User"], config["WorkingDir"]) == ("65534:65534", "/workspace")
        assert (config["Tty"], config["OpenStdin"], config["StdinOnce"]) == (False, True, True)
        assert config["NetworkDisabled"] is True

    async def test_an_image_without_the_label_gets_a_hosts_file(self, make_docker):
        tag = f"autogen-codeact/test-{uuid.uuid4().hex[:12]}:1"
        with closing(connect()) as client:
            build_from(client, f'FROM {DEFAULT_IMAGE}\nLABEL {LOCALHOST_LABEL}=""\n', tag)
            try:
                executor = await make_docker(image=tag)
                assert container_of(executor)["Config"].get("NetworkDisabled", False) is False
                code = """
                    import json, os, socket
                    named = "localhost" in open("/etc/hosts").read()
                    print(json.dumps([named, os.listdir("/sys/class/net"), socket.gethostbyname("localhost")]))
                """
                found = await ask(executor, code)
                await executor.stop()
            finally:
                client.remove_image(tag)
        assert found == [True, ["lo"], "127.0.0.1"]
