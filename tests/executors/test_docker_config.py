"""Every argument goes into the config and comes back, and does in a real container what it says."""

import json
import os
import uuid
from contextlib import closing
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from autogen_core.code_executor import CodeExecutor, FunctionWithRequirements
from docker.types import DeviceRequest
from pydantic import ValidationError

from autogen_codeact.executors import (
    DockerCommandLineCodeExecutor,
    Limits,
    SandboxStartError,
    SandboxUnavailable,
    ToolLimits,
)
from codeact_sandbox import Secret
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.image import DERIVED
from codeact_sandbox.types.options import DEFAULT_IMAGE
from tests.abuse.oracles import containers
from tests.sandbox.images import make_wheel
from tests.sandbox.sandboxes import inspect, out, run

CUBE = DeviceRequest(driver="cube", count=-1, capabilities=[["gpu", "compute"]], options={"a": "b"})
PROVIDER = "autogen_codeact.executors.DockerCommandLineCodeExecutor"
ONE = DeviceRequest(device_ids=["0", "2"], capabilities=[["gpu"]])

ARGUMENTS: dict[str, Any] = {
    "image": "python:3.12-slim",
    "container_name": "some-name",
    "timeout": 1.5,
    "work_dir": "/tmp/some/where",
    "bind_dir": "/tmp/else/where",
    "data": ["/usr"],
    "skills": [str(Path(__file__).parents[2] / "samples" / "skills")],
    "allow_pip": True,
    "auto_remove": False,
    "stop_container": False,
    "device_requests": [CUBE, ONE],
    "functions_module": "helpers",
    "functions_source": "def answer() -> int:\n    return 42\n",
    "functions_packages": ["requests"],
    "extra_volumes": {"/opt": {"bind": "/mnt/opt", "mode": "ro"}},
    "extra_hosts": {"one.example": "10.0.0.1"},
    "init_command": "echo init",
    "delete_tmp_files": True,
    "mode": "session",
    "limits": Limits(memory="200m", cpus=0.5, pids=99, nofile=128, workspace="9m", tmp="8m", files=700, output=4096),
    "user": "1234:2345",
    "network": "bridge",
    "seccomp": "engine",
    "runtime": "crun",
    "environment": {"LITERAL": "${LITERAL}", "OTHER": "${HOST_NAME}"},
    "secrets": {"API_KEY": Secret(env="HOST_KEY", hosts=["api.example.com", "*.example.org:8443"])},
    "preload": ["json"],
    "packages": ["sympy", "polars>=1"],
    "checkpoint": False,
    "allow_domains": ["api.example.com", "*.example.org:443"],
    "docker_host": "tcp://127.0.0.1:1",
    "exclude": ["*.log"],
    "include": [".env"],
    "write_back": [".git", ".vs*"],
    "tool_limits": ToolLimits(calls=9, file_bytes="9m", seconds=1.5),
}


def round_trip(executor: DockerCommandLineCodeExecutor) -> DockerCommandLineCodeExecutor:
    dumped = executor.dump_component().model_dump_json()
    loaded = CodeExecutor.load_component(json.loads(dumped))
    assert type(loaded) is DockerCommandLineCodeExecutor
    assert loaded.dump_component().model_dump_json() == dumped
    return loaded


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class TestConfig:
    def test_config_has_every_argument(self):
        names = set(signature(DockerCommandLineCodeExecutor.__init__).parameters)
        names -= {"self", "functions", "progress", "functions_prompt_template", "tools", "approve_tool", "pool"}
        assert {*ARGUMENTS, "snapshot"} == names  # which no sandbox has together with `work_dir`

    def test_config_carries_a_snapshot(self):
        executor = DockerCommandLineCodeExecutor(snapshot="/tmp/some/snapshot.tar.gz")
        config = executor.dump_component().config
        assert config["snapshot"] == "/tmp/some/snapshot.tar.gz"
        assert (
            DockerCommandLineCodeExecutor._from_config(type(executor._to_config())(**config)).dump_component().config
            == config
        )

    def test_config_carries_all_arguments_together(self):
        # A way out to named hosts is for a sandbox without a network.
        together = {**ARGUMENTS, "network": "none"}
        round_trip(DockerCommandLineCodeExecutor(**together, functions=[add]))

    @pytest.mark.parametrize(
        ("config", "error", "word"),
        [
            ({"tmeout": 3}, ValidationError, "tmeout"),
            ({"limits": {"memroy": "1g"}}, ValidationError, "memroy"),
            ({"limits": {"memory": "much"}}, ValidationError, "memory"),
            ({"mode": "repl"}, ValidationError, "mode"),
            ({"functions": ["x"]}, ValidationError, "functions"),
            ({"timeout": 0}, ValueError, "Timeout"),
            ({"functions_module": "no module"}, ValueError, "functions_module"),
        ],
    )
    def test_config_refuses_unknown_keys_and_invalid_values(self, config, error, word):
        with pytest.raises(error, match=word):
            DockerCommandLineCodeExecutor.load_component({"provider": PROVIDER, "config": config})


class TestLoadedConfig:
    """One argument after the other, through the config, in a container that was really created."""

    async def test_container_has_all_that_was_asked_for(self, sandbox_image, tmp_path, monkeypatch):
        (tmp_path / "given.txt").write_text("given\n")
        tmp_path.chmod(0o755)
        monkeypatch.setenv("MY_KEY", "the key")
        given = DockerCommandLineCodeExecutor(
            limits=Limits(memory="300m", cpus=0.5, pids=99, nofile=128, workspace="9m", tmp="8m"),
            user="1234:2345",
            network="bridge",
            seccomp="engine",
            extra_volumes={str(tmp_path): {"bind": "/mnt/given", "mode": "ro"}},
            extra_hosts={"one.example": "10.1.2.3"},
            environment={"KEY": "${MY_KEY}", "TZ": "${NO_SUCH:-UTC}"},
            preload=["decimal"],
            timeout=3,
        )
        executor = round_trip(given)
        # A default is a value too, and stays behind.
        with pytest.raises(ValueError, match="NO_SUCH"):
            await executor.start()
        monkeypatch.setenv("NO_SUCH", "CET")
        async with executor:
            with closing(connect()) as client:
                found = inspect(client, executor.container_name)
            host = found["HostConfig"]
            assert (host["Memory"], host["NanoCpus"], host["PidsLimit"]) == (300 << 20, 5 * 10**8, 99)
            assert (host["NetworkMode"], host["ReadonlyRootfs"]) == ("bridge", True)
            assert (host["SecurityOpt"], host["CapDrop"]) == (["no-new-privileges:true"], ["ALL"])
            assert host["Binds"] == [f"{tmp_path}:/mnt/given:ro"]
            code = "import os, socket, sys; print(os.getuid(), os.getgid(), len(socket.if_nameindex()) > 1)"
            assert await out(executor, code) == "1234 2345 True\n"
            code = "print(os.environ['KEY'], os.environ['TZ'], 'MY_KEY' in os.environ, 'decimal' in sys.modules)"
            assert await out(executor, f"import os, sys; {code}") == "the key CET False True\n"
            shown = await out(executor, "cat /mnt/given/given.txt; grep one /etc/hosts; echo $KEY", "sh")
            assert shown == "given\n10.1.2.3\tone.example\nthe key\n"
            assert (await run(executor, "touch /mnt/given/x", "sh")).exit_code == 1
            assert (await run(executor, "import time; time.sleep(60)")).outcome == "timeout"

    async def test_device_requests(self, sandbox_image):
        executor = round_trip(DockerCommandLineCodeExecutor(device_requests=[CUBE, ONE]))
        launcher = executor.sandbox.new_client()._launcher
        with closing(connect()) as client:
            container = launcher._create(client, DEFAULT_IMAGE, "pass", {}, managed_network=True)  # type: ignore[attr-defined]
            try:
                requests = inspect(client, container)["HostConfig"]["DeviceRequests"]
            finally:
                client.remove_container(container, force=True)
        for request in requests:
            request["DeviceIDs"] = request["DeviceIDs"] or None  # engines differ in what they say of none
        cube = {"Driver": "cube", "Count": -1, "Capabilities": [["gpu", "compute"]], "Options": {"a": "b"}}
        one = {"Driver": "", "Count": 0, "DeviceIDs": ["0", "2"], "Capabilities": [["gpu"]], "Options": {}}
        assert requests == [{**cube, "DeviceIDs": None}, one]
        # An engine without such devices refuses, in words, and leaves nothing.
        with pytest.raises(SandboxStartError, match="device_requests"):
            await executor.start()
        assert containers() == set()

    async def test_the_packages_of_functions_go_into_a_derived_image(self, sandbox_image, tmp_path):
        """Also where the function was given to another process, which wrote the config."""
        wheel = make_wheel(tmp_path, f"VALUE = 41  # {uuid.uuid4()}")
        answer = FunctionWithRequirements.from_str(
            "def answer() -> int:\n    return tinywheel.VALUE + 1\n",
            python_packages=[str(wheel)],
            global_imports=["tinywheel"],
        )
        image = ""
        with closing(connect()) as client:
            try:
                async with round_trip(DockerCommandLineCodeExecutor(functions=[answer])) as executor:
                    image = inspect(client, executor.container_name)["Config"]["Image"]
                    assert image.startswith(f"{DERIVED}:")
                    assert await out(executor, "from functions import answer; print(answer())") == "42\n"
            finally:
                if image:
                    client.remove_image(image, force=True)

    async def test_docker_host_and_auto_remove_off_which_keeps_the_container(self, sandbox_image, tmp_path):
        with pytest.raises(SandboxUnavailable, match="no such socket"):
            await DockerCommandLineCodeExecutor(docker_host=f"unix://{tmp_path}/none.sock").start()
        address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        name = f"codeact-test-{uuid.uuid4().hex[:8]}"
        given = DockerCommandLineCodeExecutor(container_name=name, auto_remove=False, docker_host=address)
        try:
            async with round_trip(given) as executor:
                assert await out(executor, "print(1)") == "1\n"
            with closing(connect()) as client:
                state = inspect(client, name)["State"]
                assert (state["Running"], state["ExitCode"]) == (False, 0)
        finally:
            with closing(connect()) as client:
                client.remove_container(name, force=True)

    async def test_stop_container_off_keeps_it_for_the_next_start(self, sandbox_image):
        executor = round_trip(DockerCommandLineCodeExecutor(stop_container=False, mode="session"))
        try:
            async with executor:
                await out(executor, "x = 1")
                name = executor.container_name
            with pytest.raises(RuntimeError, match="stopped"):
                await run(executor, "x")
            async with executor:
                assert await out(executor, "x") == "1\n"
                assert executor.container_name == name
        finally:
            executor.sandbox.options = executor.sandbox.options.model_copy(update={"stop_container": True})
            await executor.stop()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"image": "no such image!"}, ValueError, "not the name of an image"),
        ({"user": "nobody-here"}, SandboxStartError, "nobody-here"),
        ({"container_name": "not a name!"}, SandboxStartError, "container"),
        ({"extra_volumes": {"relative/path!": {"bind": "/x"}}}, SandboxStartError, "volume"),
        ({"limits": Limits(cpus=10_000)}, SandboxStartError, "CPU"),
    ],
)
async def test_an_error_of_the_engine_is_reported_and_leaves_nothing(sandbox_image, options, error, words):
    executor = DockerCommandLineCodeExecutor(**options)
    with pytest.raises(error, match=words):
        await executor.start()
    await executor.stop()
    assert containers() == set()
