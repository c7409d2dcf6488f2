"""Which engine is used, and what is said of a context that does not exist."""

import hashlib
import json
from contextlib import closing
from pathlib import Path

import pytest

from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.types.errors import SandboxUnavailable
from tests.abuse.engine_proxy import engine_proxy


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))


def use_context(folder: Path, host: str) -> None:
    """Make a context of an engine the current one."""
    name = "elsewhere"
    (folder / "config.json").write_text(json.dumps({"currentContext": name}))
    place = folder / "contexts/meta" / hashlib.sha256(name.encode()).hexdigest()
    place.mkdir(parents=True)
    endpoints = {"docker": {"Host": host, "SkipTLSVerify": False}}
    (place / "meta.json").write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": endpoints}))


@pytest.mark.usefixtures("docker_engine")
def test_the_argument_overrides_docker_host_which_overrides_the_context(tmp_path, monkeypatch):
    with engine_proxy() as context, engine_proxy() as environment, engine_proxy() as argument:
        use_context(tmp_path, context.address)
        for engine, given in ((context, None), (environment, None), (argument, argument.address)):
            if engine is environment:
                monkeypatch.setenv("DOCKER_HOST", environment.address)
            with closing(connect(given)) as client:
                assert client.ping()
            used = [each for each in (context, environment, argument) if each.requests]
            assert used == [engine]
            engine.requests.clear()


def test_a_context_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "nowhere")
    with pytest.raises(SandboxUnavailable, match=r"context nowhere does not exist.*docker context ls"):
        connect()
