"""Part H, case 19: the engine or its container stops working in the middle of a transfer, in either direction."""

import ast
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.executors import (
    DockerCommandLineCodeExecutor,
    SandboxError,
    SandboxFileError,
)
from codeact_sandbox.backends.docker import launcher
from codeact_sandbox.host import requests
from tests.sandbox.sandboxes import pause_container, run

from .engine_proxy import EngineProxy, Fault
from .faults import engine, eventually, exists

pytestmark = [pytest.mark.usefixtures("docker_engine"), pytest.mark.timeout(120)]

SIZE = 3 << 20
ANSWER_S = 2.0
# The deadline of an answer, the stream's end, the engine's removal of a container that does not end by itself.
WITHIN_S = ANSWER_S + 2 + 10 + 10 + 5
LIST = "import os; print([name for name in os.listdir() if not name.startswith('tmp_code_')])"
MAKE = f"with open('made', 'wb') as file: file.write(bytes(range(256)) * {SIZE // 256})"


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long an answer about a file is waited for, the end of a container, and the engine's removal of one."""
    monkeypatch.setattr(requests, "ANSWER_TIMEOUT_S", ANSWER_S)
    monkeypatch.setattr(launcher, "GONE_TIMEOUT_S", 1)
    monkeypatch.setattr(launcher, "REMOVE_TIMEOUT_S", 3.0)


def pausing(proxy: EngineProxy, executor: DockerCommandLineCodeExecutor) -> bool:
    """Pause the container, behind the back of the executor."""
    engine(lambda api: pause_container(api, executor.container_name))
    return True


def killing(proxy: EngineProxy, executor: DockerCommandLineCodeExecutor) -> bool:
    """Kill the container."""
    engine(lambda api: api.kill(executor.container_name))
    return True


def cutting(proxy: EngineProxy, executor: DockerCommandLineCodeExecutor) -> bool:
    """Cut the connection."""
    return False


def freezing(proxy: EngineProxy, executor: DockerCommandLineCodeExecutor) -> bool:
    """Pass nothing on any more, neither here nor on other connections."""
    proxy.freeze()
    return True


Act = Callable[[EngineProxy, DockerCommandLineCodeExecutor], bool]


def part_files(folder: Path) -> list[str]:
    """What lies in a folder, hidden and half-written files included."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


async def send_with_a_block(executor: DockerCommandLineCodeExecutor, work: Path) -> None:
    """The host's files go to the sandbox before a block."""
    (work / "sent").write_bytes(os.urandom(SIZE))
    await run(executor, "print(1)")


async def send_by_hand(executor: DockerCommandLineCodeExecutor, work: Path) -> None:
    """A file goes there by `upload`."""
    (work.parent / "sent").write_bytes(os.urandom(SIZE))
    await executor.upload(work.parent / "sent")


async def fetch_with_a_block(executor: DockerCommandLineCodeExecutor, work: Path) -> None:
    """What a block made comes back after it."""
    result = await run(executor, MAKE)
    # A block whose result is there has that result, and says which files did not come.
    assert [each.path for each in result.artifacts] == []


async def fetch_by_hand(executor: DockerCommandLineCodeExecutor, work: Path) -> None:
    """A file comes by `download`."""
    await executor.download("large", work.parent / "fetched" / "large")


# The last one leaves a file of the host in work_dir, which all later sandboxes have.
TRANSFERS: dict[str, tuple[Any, bool]] = {
    "fetched with a block": (fetch_with_a_block, False),
    "fetched by hand": (fetch_by_hand, False),
    "sent by hand": (send_by_hand, True),
    "sent with a block": (send_with_a_block, True),
}


# Case H19.
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("act", "after"),
    [
        *((cutting, after) for after in (300_000, SIZE - 100_000)),
        (pausing, 300_000),
        (killing, SIZE - 100_000),
        (freezing, SIZE // 2),  # the engine itself is away then, and the end of the container is waited for
    ],
    ids=lambda given: getattr(given, "__name__", given),
)
async def test_an_interrupted_transfer_is_a_typed_error_and_leaves_no_partial_file(
    proxy, untouched, tmp_path, act, after
):
    """And the executor serves the next block with a fresh sandbox, in which the next transfer is interrupted."""
    work = tmp_path / "work"
    work.mkdir()
    executor = DockerCommandLineCodeExecutor(docker_host=proxy.address, work_dir=work, timeout=5, delete_tmp_files=True)
    try:
        await executor.start()
        for transfer in TRANSFERS:
            await check_interrupted(proxy, executor, work, transfer, act, after)
    finally:
        proxy.thaw()
        await executor.stop()


async def check_interrupted(
    proxy: EngineProxy, executor: DockerCommandLineCodeExecutor, work: Path, transfer: str, act: Act, after: int
) -> None:
    """Interrupt one transfer after so many bytes, and look at what is left and whether the next block works."""
    move, up = TRANSFERS[transfer]
    if move is fetch_by_hand:
        (work.parent / "large").write_bytes(bytes(SIZE))
        await executor.upload(work.parent / "large")
    # What `upload` sends is in work_dir as well, whole.
    on_host = sorted({*part_files(work), *(["sent"] if move is send_with_a_block else [])})
    assert set(on_host) <= {"large", "sent"}, transfer
    name = executor.container_name
    proxy.fault = Fault(up, after, lambda: act(proxy, executor))
    began = time.monotonic()
    with pytest.raises(SandboxError) as caught:
        await move(executor, work)
    assert time.monotonic() - began < WITHIN_S, transfer
    assert not isinstance(caught.value, SandboxFileError), transfer
    assert proxy.fault.done.is_set(), transfer
    assert part_files(work) == on_host, transfer
    assert part_files(work.parent / "fetched") == [], transfer
    proxy.thaw()
    await eventually(lambda: not exists(name), 20)
    result = await run(executor, LIST)
    assert (result.outcome, result.state) == ("ok", "lost"), transfer
    assert sorted(ast.literal_eval(result.output)) == on_host, transfer
