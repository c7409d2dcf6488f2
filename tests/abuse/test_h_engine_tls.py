"""Part H, case 19: an engine that is reached over TCP with TLS and client certificates."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from autogen_codeact.executors import DockerCommandLineCodeExecutor, SandboxDied, SandboxUnavailable
from tests.sandbox.sandboxes import out, run

from .faults import eventually
from .second_engine import SecondEngine, make_second_engine, write_certificates

pytestmark = [pytest.mark.usefixtures("docker_engine"), pytest.mark.timeout(180)]


class TlsEngine:
    """A second engine with TLS, and certificates of several kinds."""

    def __init__(self, engine: SecondEngine, folder: Path) -> None:
        self.engine = engine
        self.running = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        authority, other = trustme.CA(), trustme.CA()
        self._server = write_certificates(folder / "server", authority, authority.issue_cert("127.0.0.1"))
        mine = authority.issue_cert("client")
        self.good = write_certificates(folder / "good", authority, mine)
        self.wrong_authority = write_certificates(folder / "wrong-authority", other, mine)
        self.wrong_client = write_certificates(folder / "wrong-client", authority, other.issue_cert("client"))

    def start(self) -> None:
        """Start the engine."""
        self.running = True
        self.engine.start(tls=(self.listener, self._server))


@pytest.fixture(scope="module")
def tls_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsEngine]:
    """A second engine that listens on loopback."""
    made = make_second_engine()
    try:
        tls = TlsEngine(made, tmp_path_factory.mktemp("certificates"))
        with tls.listener:
            yield tls
    finally:
        made.clear()


@pytest.fixture
def secured(tls_engine: TlsEngine, monkeypatch: pytest.MonkeyPatch) -> TlsEngine:
    """The environment of a user who reaches the engine; it runs."""
    if not tls_engine.running:
        tls_engine.start()
    # requests would take this instead of the authority in DOCKER_CERT_PATH.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tls_engine.wrong_authority / "ca.pem"))
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{tls_engine.port}")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tls_engine.good))
    return tls_engine


@pytest.mark.parametrize("mode", ["process", "session"])
async def test_h19_blocks_files_and_tools_work_over_tls(secured, untouched, mode, tmp_path):
    """TLS keeps bytes that no selector sees, and its two directions share a state."""
    data = os.urandom(4 << 20)
    work = tmp_path / "work"
    work.mkdir()
    (work / "sent").write_bytes(data)

    def add(a: int, b: int) -> int:
        return a + b

    options = {"work_dir": work, "mode": mode, "tools": [add]}
    async with DockerCommandLineCodeExecutor(**options) as executor:  # type: ignore[arg-type]
        result = await run(
            executor, "d = open('sent', 'rb').read()\nopen('back', 'wb').write(d[::-1])\nprint(add(2, 3))"
        )
        assert result.output == "5\n"
        assert (work / "back").read_bytes() == data[::-1]
        # Output and files in both directions at once, many requests in a row.
        outputs = await asyncio.gather(*(out(executor, f"print({n}, 'x' * 300_000)") for n in range(6)))
        assert [len(each) for each in outputs] == [300_003] * 6
        for number in range(10):
            assert await out(executor, f"print({number})") == f"{number}\n"
        (work / "sent").write_bytes(data[:1000])
        assert await out(executor, "import os; print(os.path.getsize('sent'))") == "1000\n"
        name = executor.container_name
        assert name in secured.engine.containers()
    assert name not in secured.engine.containers()


async def test_h19_a_stream_over_tls_ends_with_its_engine(secured, untouched, tmp_path, monkeypatch):
    """In the middle of a block; the next call has a fresh sandbox."""
    executor = DockerCommandLineCodeExecutor(work_dir=tmp_path / "work", timeout=30)
    try:
        await executor.start()
        running = asyncio.ensure_future(run(executor, "import time; time.sleep(20)"))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(secured.engine.end)
        with pytest.raises(SandboxDied):
            await asyncio.wait_for(running, 30)
        await asyncio.to_thread(secured.start)
        assert (await run(executor, "print(1)")).state == "lost"
    finally:
        await executor.stop()
        await asyncio.to_thread(secured.engine.end)
        secured.running = False
        # The oracles ask the engine for containers, and would wait a minute for a handshake with one that has ended.
        monkeypatch.undo()


WITHIN_S = 40
FAULTS = {
    "another authority": ("wrong_authority", "127.0.0.1", "No TLS connection.*DOCKER_CERT_PATH"),
    "another client": ("wrong_client", "127.0.0.1", "No TLS connection.*DOCKER_CERT_PATH"),
    "another name": ("good", "localhost", "No TLS connection"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_h19_a_wrong_certificate_is_reported_in_time(secured, untouched, fault, monkeypatch):
    """The name in it, its authority, the client's own."""
    folder, host, words = FAULTS[fault]
    monkeypatch.setenv("DOCKER_HOST", f"tcp://{host}:{secured.port}")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(getattr(secured, folder)))
    began = time.monotonic()
    with pytest.raises(SandboxUnavailable, match=words):
        await DockerCommandLineCodeExecutor().start()
    assert time.monotonic() - began < WITHIN_S


@pytest.mark.parametrize("missing", ["cert.pem", "key.pem", "ca.pem", "all"])
async def test_h19_a_missing_certificate_is_reported_in_time(secured, untouched, missing, monkeypatch, tmp_path):
    """Also the whole folder."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    for name in ("ca.pem", "cert.pem", "key.pem"):
        if missing not in (name, "all"):
            (folder / name).write_bytes((secured.good / name).read_bytes())
    monkeypatch.setenv("DOCKER_CERT_PATH", str(folder))
    began = time.monotonic()
    with pytest.raises(SandboxUnavailable, match=r"No TLS connection.*DOCKER_CERT_PATH"):
        await DockerCommandLineCodeExecutor().start()
    assert time.monotonic() - began < WITHIN_S


async def test_h19_a_port_that_requires_tls_is_reported_in_time(secured, untouched, monkeypatch):
    """What the engine answers to plain HTTP."""
    monkeypatch.delenv("DOCKER_TLS_VERIFY")
    monkeypatch.delenv("DOCKER_CERT_PATH")
    began = time.monotonic()
    with pytest.raises(SandboxUnavailable, match="DOCKER_TLS_VERIFY=1"):
        await DockerCommandLineCodeExecutor().start()
    assert time.monotonic() - began < WITHIN_S


async def test_h19_a_port_that_never_answers_a_tls_handshake_is_reported_in_time(secured, untouched, monkeypatch):
    """A listener that accepts and is silent."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        with pytest.raises(SandboxUnavailable, match=r"does not answer in time|No TLS connection"):
            await DockerCommandLineCodeExecutor().start()
        assert time.monotonic() - began < WITHIN_S
        with suppress(TimeoutError, OSError):
            silent.settimeout(0.1)
            silent.accept()[0].close()


async def test_h19_sandboxes_over_tls_leave_nothing(secured: TlsEngine, untouched: None) -> None:
    """Several at once, and then none."""
    executors = [DockerCommandLineCodeExecutor() for _ in range(3)]
    await asyncio.gather(*(each.start() for each in executors))
    await asyncio.gather(*(out(each, "print(1)") for each in executors))
    await asyncio.gather(*(each.stop() for each in executors))
    await eventually(lambda: secured.engine.containers() == set())
