"""H. The variables of the code, 16: seen by nobody else; 7: none lets a start run what an earlier sandbox has left behind."""

import asyncio
import json
import logging
import os
import uuid
from contextlib import closing, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from codeact_sandbox.backends.docker.engine import connect

from .faults import eventually
from .oracles import processes_in
from .subject import Subject

CANARY = f"canary-{uuid.uuid4().hex}"
SHOWN = "import os; print(os.environ['API_KEY'], os.environ['GIVEN'])"
SEARCH = """
    import os
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("environ", "cmdline"):
            try: text = open(f"/proc/{pid}/{name}").read()
            except OSError: continue
            if os.environ["API_KEY"] in text: found.append((pid, name))
    print(found)
"""


def holding(text: str, *names: str) -> set[str]:
    """The processes of this machine with a text in one of their files in /proc."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in names:
            with suppress(OSError):
                if text.encode() in Path("/proc", pid, name).read_bytes():
                    found.add(pid)
    return found


def files_with(text: str, folder: Path) -> list[Path]:
    """The files below a folder that hold a text."""
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


@pytest_asyncio.fixture
async def told(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> Subject:
    """A sandbox with the canary in two variables."""
    monkeypatch.setenv("CODEACT_TEST_GIVEN", CANARY)
    await subject.start({"environment": {"API_KEY": CANARY, "GIVEN": "${CODEACT_TEST_GIVEN}"}})
    return subject


# Case H16.
async def test_the_engine_and_its_files_show_no_value_of_the_environment(told: Subject) -> None:
    if told.kind.engine != "docker":
        pytest.skip("bubblewrap has no engine to ask")
    assert await told.out(SHOWN) == f"{CANARY} {CANARY}\n"
    assert isinstance(told.executor, DockerCommandLineCodeExecutor)
    with closing(connect()) as client:
        found = client.inspect_container(told.executor.container_name)
        listed = client.containers(all=True, filters={"id": found["Id"]})
    assert "PIP_DISABLE_PIP_VERSION_CHECK=1" in found["Config"]["Env"]  # so the engine shows what it was given
    assert CANARY not in json.dumps([found, listed])
    if os.geteuid() == 0:
        assert not files_with(CANARY, Path("/var/lib/docker/containers", found["Id"]))


# Case H16.
async def test_only_programs_that_blocks_start_show_a_value(told: Subject) -> None:
    assert await told.out(SHOWN) == f"{CANARY} {CANARY}\n"
    assert await told.out(SEARCH) == "[]\n"
    sandbox = {item.partition(":")[0] for item in processes_in(told.namespaces)}
    assert len(sandbox) >= 2
    assert holding(CANARY, "environ", "cmdline") == set()
    # The control: a program of the code has them, which is what they are for, and the search finds it.
    running = asyncio.ensure_future(told.run("sleep 5; echo $API_KEY", "sh", timeout=20))
    await eventually(lambda: bool(holding(CANARY, "environ")), 10)
    assert holding(CANARY, "cmdline") == set()
    assert (await running).output == f"{CANARY}\n"


# Case H16.
async def test_no_log_config_or_error_shows_a_value(told, caplog, monkeypatch):
    with caplog.at_level(logging.DEBUG):
        await told.executor.restart()
        told.look()
        assert await told.out(SHOWN) == f"{CANARY} {CANARY}\n"
        monkeypatch.setenv("CODEACT_TEST_GIVEN", CANARY + "\udcff")
        with pytest.raises(ValueError, match="CODEACT_TEST_GIVEN is not valid UTF-8") as refused:
            await told.kind.make(environment={"GIVEN": "${CODEACT_TEST_GIVEN}"}).start()
    sandbox = told.executor.sandbox.client
    assert sandbox is not None
    said = [record.getMessage() for record in caplog.records]
    shown = [str(refused.value), told.executor.dump_component().model_dump_json(), repr(sandbox.settings)]
    assert CANARY not in "\n".join([*said, *shown, repr(vars(told.executor))])
    told._lost = True
