"""`AsyncSandbox`: strings in, results out, without AutoGen."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from codeact_sandbox import AsyncSandbox, BubblewrapOptions, Limits, Result, SandboxFileError, SandboxNotStarted
from codeact_sandbox.pool import SandboxPool
from tests.cases import case
from tests.sandbox import reused


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


pytestmark = pytest.mark.usefixtures("bubblewrap")


@pytest_asyncio.fixture
async def box() -> AsyncIterator[AsyncSandbox]:
    async with reused.sandbox("bubblewrap", timeout=20) as started:
        yield started


async def test_variables_stay_from_block_to_block(box: AsyncSandbox) -> None:
    await box.run("x = 41")
    result = await box.run("x + 1")
    assert type(result) is Result
    assert (result.value_repr, result.output, result.exit_code, result.state) == ("42", "42\n", 0, "kept")
    assert (await box.run("echo $((6 * 7))", "sh")).output == "42\n"


async def test_a_timeout_of_one_block_keeps_the_session(box: AsyncSandbox) -> None:
    await box.run("x = 1")
    result = await box.run("while True: pass", timeout=0.5)
    assert (result.outcome, result.exit_code, result.state) == ("timeout", 124, "restored")
    assert result.notes[-1] == "It was stopped after 0.5 s, its time limit (timeout=)."
    assert (await box.run("x")).output == "1\n"
    with pytest.raises(ValueError, match="Timeout must be greater than or equal to 1 ms"):
        await box.run("1", timeout=0)


async def test_files_go_both_ways(box: AsyncSandbox, tmp_path: Path) -> None:
    (tmp_path / "sent.txt").write_text("sent")
    await box.put(tmp_path / "sent.txt")
    await box.put(tmp_path / "sent.txt", "deep/other.txt")
    await box.write("text.txt", "grüße")
    await box.write("data.bin", bytes(range(256)) * 4096)
    assert sorted(await box.list_files()) == ["data.bin", "deep/other.txt", "sent.txt", "text.txt"]
    assert (await box.run("open('text.txt').read()")).output == "'grüße'\n"
    assert await box.read("data.bin") == bytes(range(256)) * 4096
    assert (await box.get("deep/other.txt", tmp_path / "back.txt")).read_text() == "sent"
    with pytest.raises(SandboxFileError):
        await box.read("nothing")
    with pytest.raises(ValueError, match=r"\.\."):
        await box.write("../outside", "x")


async def test_the_first_block_starts_it_and_after_stop_it_must_be_started() -> None:
    box = AsyncSandbox("bubblewrap")
    try:
        with pytest.raises(SandboxNotStarted):
            _ = box.work_dir
        assert (await box.run("1 + 1")).output == "2\n"
    finally:
        await box.stop()
    with pytest.raises(SandboxNotStarted, match="call start"):
        await box.run("1")


async def test_auto_backend_is_bubblewrap_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    async with AsyncSandbox(limits=Limits(memory="300m")) as box:
        assert isinstance(box._managed.options, BubblewrapOptions)
        assert box._managed.options.limits.memory == "300m"
        assert (await box.run("1 + 1")).output == "2\n"


async def test_options_can_be_given_as_a_model() -> None:
    async with AsyncSandbox(BubblewrapOptions(timeout=5)) as box:
        assert (box._managed.timeout, box._managed.options.mode) == (5, "session")
        assert (await box.run("1 + 1")).output == "2\n"


ELSEWHERE = "is not for sandbox='bubblewrap': leave it out, or choose another sandbox"


def test_wrong_options_are_refused() -> None:
    for arguments, options, error, words in [
        ((), {"colour": "red"}, TypeError, "AsyncSandbox() has no option 'colour'"),
        (("firejail",), {}, ValueError, "backend must be 'auto', 'docker' or 'bubblewrap', not 'firejail'"),
        (("bubblewrap",), {"image": "x"}, ValueError, f"image= {ELSEWHERE}"),
        ((), {"timeout": "soon"}, ValueError, "timeout must be a number of seconds, not 'soon'"),
        (
            (BubblewrapOptions(),),
            {"timeout": 3},
            TypeError,
            "timeout: options are given either as BubblewrapOptions or by name",
        ),
        ((), {"tools": [3]}, TypeError, "3 is not a tool: give a typed function"),
    ]:
        with case(arguments, options, error, words):
            with pytest.raises(error) as caught:
                AsyncSandbox(*arguments, **options)
            assert str(caught.value) == words


async def test_sandbox_can_be_taken_from_a_pool() -> None:
    async with SandboxPool(1, sandbox="bubblewrap", limits=Limits(memory="300m")) as pool:
        async with AsyncSandbox(pool=pool) as box:
            assert box._managed.options.backend == "bubblewrap"
            await box.run("x = 1")
            assert pool.leased == 1
        async with AsyncSandbox(pool=pool, timeout=5) as box:
            assert (await box.run("'x' in globals()")).output == "False\n"
            assert box._managed.timeout == 5
        with pytest.raises(ValueError, match="the executor and its pool differ in mode"):
            AsyncSandbox(pool=pool, mode="process")


class TestNotebookView:
    async def test_notebook_view_has_text_and_html(self, box: AsyncSandbox) -> None:
        result = await box.run("open('a.txt', 'w').write('<x>'); print('<b>'); 1 < 2")
        bundle = result._repr_mimebundle_()
        assert bundle["text/plain"] == "<b>\nTrue\nFiles: a.txt"
        assert "&lt;b&gt;\nTrue</pre>" in bundle["text/html"]
        assert "<b>" not in bundle["text/html"]

    async def test_notebook_view_names_the_error_once(self, box: AsyncSandbox) -> None:
        text = (await box.run("1 / 0"))._repr_mimebundle_()["text/plain"]
        assert text.count("ZeroDivisionError: division by zero") == 1
        timeout = (await box.run("while True: pass", timeout=0.3))._repr_mimebundle_()["text/plain"]
        assert timeout == "(timeout)"
