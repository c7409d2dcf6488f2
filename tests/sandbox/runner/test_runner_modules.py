"""The runner's modules: what a sandbox has compiled is sent to later sandboxes with the same Python, and to no others."""

import asyncio
import importlib.util
import socket
import threading
from collections.abc import Callable, Hashable

import pytest

from autogen_codeact.executors import DockerCommandLineCodeExecutor, SandboxStartError
from codeact_sandbox.host import runner_modules
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.connection import Connection
from codeact_sandbox.host.protocol import RunnerSettings, pack
from codeact_sandbox.runner.shared import wire
from tests.sandbox.host.test_frames import HELLO, FakeLauncher, message, raw
from tests.sandbox.runner.local_runner import LocalRunner, find_python
from tests.sandbox.runner.test_runner_old_python import VERSIONS, needs_namespaces
from tests.sandbox.sandboxes import out

OWN = importlib.util.MAGIC_NUMBER
COMPILED = b"\xff\xff\r\n not to be loaded here"
Play = Callable[["Runner"], None]


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[Hashable, bytes]:
    """What the host has kept: nothing at the beginning of a test."""
    empty: dict[Hashable, bytes] = {}
    monkeypatch.setattr(runner_modules, "_kept", empty)
    return empty


class Runner:
    """The other end of a connection, played by a test."""

    def __init__(self, other: socket.socket) -> None:
        self._other = other
        self._parser = wire.Parser()
        self.got: list[tuple[bytes, bytes]] = []

    def read(self, kind: bytes) -> bytes:
        """Read up to a frame of a type; gives its payload."""
        while True:
            for payload in [payload for got, payload in self.got if got == kind]:
                return payload
            data = self._other.recv(1 << 20)
            assert data, "the host has closed the stream"
            self.got += [(got, payload) for got, _, payload in self._parser.feed(data)]

    def send(self, kind: bytes, payload: bytes) -> None:
        """Send a frame."""
        self._other.sendall(raw(kind, 0, payload))


def compile_them(runner: Runner) -> None:
    runner.send(b"B", b"")
    runner.read(wire.MODULE_SOURCES)
    runner.send(b"M", COMPILED)
    runner.send(b"H", message(HELLO))


def take_them(runner: Runner) -> None:
    runner.send(b"H", message(HELLO))


async def start(play: Play, python: str | None) -> Runner:
    """Start a sandbox whose runner is played; gives what it got."""
    played: list[Runner] = []

    def run(other: socket.socket) -> None:
        runner = Runner(other)
        played.append(runner)
        runner.read(wire.CONFIGURATION)
        play(runner)
        while not ended.wait(0.01) and other.fileno() >= 0:
            pass  # it lives until the host has ended it

    ended = threading.Event()
    launcher = FakeLauncher(run)
    launcher.python = python
    settings = RunnerSettings("process", "/workspace", (), 1024, True, None)
    client = RunnerClient(launcher, settings, "fake", start_timeout_s=30, grace_s=5)
    try:
        await asyncio.wait_for(client.start(), 30)
    finally:
        ended.set()
        await client.stop()
    return played[0]


class TestHost:
    async def test_host_sends_compiled_modules_to_no_other_image(self):
        await start(compile_them, "image A")
        for python in ("image B", None):
            runner = await start(take_them, python)
            assert runner.read(wire.COMPILED_MODULES).startswith(OWN)

    @pytest.mark.parametrize(
        ("frames", "problem"),
        [
            ([(b"M", COMPILED)], "an unexpected b'M'"),
            ([(b"B", b""), (b"B", b"")], "an unexpected b'B'"),
            ([(b"B", b""), (b"M", COMPILED), (b"M", COMPILED)], "an unexpected b'M'"),
            ([(b"B", b""), (b"M", COMPILED), (b"B", b"")], "an unexpected b'B'"),
            (
                [(b"B", b""), (b"M", bytes(runner_modules.MAX_COMPILED + 1))],
                "2,097,153 bytes of compiled modules; 2,097,152 are allowed",
            ),
            ([(b"H", message(HELLO)), (b"B", b"")], None),
            ([(b"H", message(HELLO)), (b"M", COMPILED)], None),
        ],
    )
    async def test_host_refuses_invalid_compiled_modules(self, frames, problem, kept):
        def play(runner: Runner) -> None:
            for kind, payload in frames:
                runner.send(kind, payload)

        if problem is not None:
            with pytest.raises(SandboxStartError, match=problem):
                await start(play, "image A")
        else:
            await start(play, "image A")  # the sandbox ends after it: see the states of a connection
        assert kept == {}


@pytest.fixture(params=VERSIONS)
def python(request: pytest.FixtureRequest) -> str:
    found = find_python(request.param)
    if found is None:
        pytest.skip(f"no Python {request.param} on this machine")
    return found


@needs_namespaces
class TestRunner:
    def test_runner_runs_what_another_one_has_compiled(self, python, tmp_path):
        with LocalRunner(python, tmp_path / "first") as first:
            first.modules = pack(wire.COMPILED_MODULES, 0, None, b"\0\0\r\nof no version")
            first.greet()
            assert first.run("print(1)")[1] == "1\n"
        assert len(first.compiled) < runner_modules.MAX_COMPILED / 2
        with LocalRunner(python, tmp_path / "second") as second:
            second.modules = pack(wire.COMPILED_MODULES, 0, None, first.compiled)
            second.greet()
            assert second.compiled is None
            assert second.run("print(2)")[1] == "2\n"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The frames that the host has sent at the start of sandboxes."""
    frames: list[bytes] = []
    send = Connection.send

    def record(self: Connection, frame: bytes) -> None:
        if frame[:1] in (wire.COMPILED_MODULES, wire.MODULE_SOURCES):
            frames.append(frame)
        send(self, frame)

    monkeypatch.setattr(Connection, "send", record)
    return frames


class TestDocker:
    async def test_second_sandbox_of_an_image_gets_what_the_first_has_compiled(
        self, sandbox_image, sent, kept, monkeypatch
    ):
        # As if this program had another Python than the image, whichever it has.
        foreign = pack(wire.COMPILED_MODULES, 0, None, b"\0\0\r\n")
        monkeypatch.setattr(runner_modules, "compiled_frame", lambda: foreign)
        for _ in range(2):
            async with DockerCommandLineCodeExecutor() as executor:
                assert await out(executor, "print(6 * 7)") == "42\n"
        ((identity, compiled),) = kept.items()
        assert isinstance(identity, tuple)
        assert identity[0] == "docker"
        assert str(identity[-1]).startswith("sha256:")
        assert sent == [foreign, runner_modules.sources_frame(), compiled]

    async def test_sandboxes_with_further_mounts_keep_and_get_nothing(self, sandbox_image, tmp_path, kept, monkeypatch):
        foreign = pack(wire.COMPILED_MODULES, 0, None, b"\0\0\r\n")
        monkeypatch.setattr(runner_modules, "compiled_frame", lambda: foreign)
        volumes = {str(tmp_path): {"bind": "/mnt/given", "mode": "ro"}}
        async with DockerCommandLineCodeExecutor(extra_volumes=volumes) as executor:
            assert await out(executor, "print(6 * 7)") == "42\n"
        assert kept == {}


class TestBubblewrap:
    async def test_identity_of_a_python_changes_with_its_file(self, tmp_path):
        from codeact_sandbox.backends.bubblewrap.interpreter import Interpreter  # noqa: PLC0415

        program = tmp_path / "python3"
        program.write_text("one")
        one = Interpreter(program, ()).identity()
        assert Interpreter(program, ()).identity() == one
        program.unlink()
        program.write_text("another")
        assert Interpreter(program, ()).identity() != one
