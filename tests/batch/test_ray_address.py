"""What a batch says when Ray or its cluster is not there, and that nothing else imports Ray."""

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autogen_codeact.batch import Ray, run_batch
from autogen_codeact.batch import ray as backend
from autogen_codeact.batch.errors import BatchError


async def error_of(address: str, tmp_path: Path) -> str:
    with pytest.raises(BatchError) as raised:
        await anext(run_batch(lambda executor: None, ["1"], out=tmp_path, backend=Ray(address)))
    return str(raised.value)


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


async def test_a_server_that_does_not_answer_is_named(
    silent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "PROBE_S", 0.2)
    assert await error_of(silent, tmp_path) == (
        f"There is no Ray cluster at {silent}: it does not answer. "
        f"`ray status --address {silent}` on that machine says whether it runs."
    )


async def test_a_wrong_address_is_explained(tmp_path: Path) -> None:
    for address in ("somewhere", "a:99999", "ray://a:1"):
        assert await error_of(address, tmp_path) == (
            f"'{address}' is not an address of a Ray cluster: give 'auto', or 'host:port' as `ray start --head` prints it, on a "
            "machine of the cluster."
        )


async def test_a_cluster_that_has_ended_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    message = await error_of("auto", tmp_path)
    assert re.fullmatch(r"There is no Ray cluster at [\d.]+:1: .* on that machine says whether it runs\.", message)


async def test_without_the_extra_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert await error_of("auto", tmp_path) == "Ray is an extra: pip install 'autogen-codeact[ray]'"


def test_nothing_imports_ray_before_a_batch_uses_it() -> None:
    program = (
        "import sys; from autogen_codeact.batch import Ray, run_batch; import autogen_codeact.batch.ray; "
        "import autogen_codeact.cli.main; Ray('auto'); print([name for name in sys.modules if name.startswith('ray')])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50)
    assert run.stdout == "[]\n"
