"""Part H, case 19: an engine that is reached over TCP with TLS and client certificates."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from autogen_codeact.executors import DockerCommandLineCodeExecutor, SandboxUnavailable
from tests.sandbox.sandboxes import out, run

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


# Case H19.
@pytest.mark.parametrize("mode", ["process", "session"])
async def test_blocks_files_and_tools_work_over_tls(secured, untouched, mode, tmp_path):
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


WITHIN_S = 40
FAULTS = {
    "another authority": ("wrong_authority", "127.0.0.1", "No TLS connection.*DOCKER_CERT_PATH"),
    "another client": ("wrong_client", "127.0.0.1", "No TLS connection.*DOCKER_CERT_PATH"),
    "another name": ("good", "localhost", "No TLS connection"),
}


# Case H19.
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_wrong_certificate_is_reported_in_time(secured, untouched, fault, monkeypatch):
    """The name in it, its authority, the client's own."""
    folder, host, words = FAULTS[fault]
    monkeypatch.setenv("DOCKER_HOST", f"tcp://{host}:{secured.port}")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(getattr(secured, folder)))
    began = time.monotonic()
    with pytest.raises(SandboxUnavailable, match=words):
        await DockerCommandLineCodeExecutor().start()
    assert time.monotonic() - began < WITHIN_S
