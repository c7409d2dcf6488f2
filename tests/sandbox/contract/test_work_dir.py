"""What is in `work_dir` on the host and in the workspace is the same, whoever made it."""

import asyncio
import re

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from codeact_sandbox import AsyncSandbox
from tests.sandbox.contract.conftest import EACH_ONCE
from tests.sandbox.sandboxes import out, run

READ = "print(open('a/b.txt').read())"


@pytest.fixture
def backend_of(request: pytest.FixtureRequest) -> object:
    """Returns a kind of sandbox that can be used here."""

    def find(kind: str) -> str:
        request.getfixturevalue("sandbox_image" if kind == "docker" else "bubblewrap")
        return kind

    return find


@pytest.mark.parametrize(
    ("kind", "write"),
    [
        ("docker", lambda box, _: box.write("a/b.txt", "new")),
        ("bubblewrap", lambda box, _: box.write("/workspace/a/b.txt", b"new")),
        ("bubblewrap", lambda box, source: box.put(source / "b.txt", "a/b.txt")),
        ("bubblewrap", lambda box, source: box.put(source, "a")),
        ("bubblewrap", lambda box, _: box.edit("a/b.txt", "old", "new")),
        ("bubblewrap", lambda box, _: box.exec("printf new > a/b.txt")),
    ],
    ids=["write", "absolute", "file", "folder", "edit", "exec"],
)
async def test_writes_of_the_host_are_on_both_sides_when_the_call_returns(backend_of, kind, write, tmp_path):
    work, source = tmp_path / "work", tmp_path / "source"
    for folder, text in ((work / "a", "old"), (source, "new")):
        folder.mkdir(parents=True)
        (folder / "b.txt").write_text(text)
    async with AsyncSandbox(backend_of(kind), work_dir=work) as box:
        assert (await box.run(READ)).output == "old\n"
        await write(box, source)
        assert (work / "a/b.txt").read_text() == "new"
        result = await box.run(READ)
        assert (result.output, result.artifacts, (work / "a/b.txt").read_text()) == ("new\n", (), "new")
        # The host is the next to write, and its file goes into the sandbox.
        (work / "a/b.txt").write_text("newer")
        assert (await box.run(READ)).output == "newer\n"


async def test_a_file_that_work_dir_does_not_take_is_named_by_the_call(bubblewrap, tmp_path):
    """As programs of the host act on it, such as interpreters and package managers."""
    async with AsyncSandbox("bubblewrap", work_dir=tmp_path) as box:
        assert "`.git` is not written back" in await box.write(".git/config", "x")
        assert "`.git` is not written back" in (await box.run("")).notes[0]
        assert "`.git` is not written back" in await box.write(".git/config", "y")
        for name in (".Rprofile", ".irbrc", ".npmrc", "sub/.Renviron", "bunfig.toml", ".pylintrc"):
            assert "programs on the host act on it" in await box.write(name, "x")
        assert await box.write("a.txt", "x") is None
        assert [each.name for each in tmp_path.rglob("*")] == ["a.txt"]


@EACH_ONCE
async def test_empty_folders_are_made_on_the_other_side(make, tmp_path):
    work = tmp_path / "work"
    (work / "output/plots").mkdir(parents=True)
    executor = await make(work_dir=work)
    await run(executor, "open('output/plots/x.txt', 'w').write('1')")
    assert (work / "output/plots/x.txt").read_text() == "1"
    (work / "later").mkdir()
    assert await out(executor, "import os; print(os.listdir('later'))") == "[]\n"
    result = await run(executor, "import os; os.makedirs('made/here')")
    assert (work / "made/here").is_dir()
    assert result.artifacts == ()
    await run(executor, CodeBlock("mkdir -p by/shell", "sh"))
    assert (work / "by/shell").is_dir()
    # What one side removes is not made again by the other.
    (work / "later").rmdir()
    await run(executor, "import os; os.rmdir('made/here')")
    await run(executor, "pass")
    assert not (work / "later").exists()
    assert await out(executor, "import os; print(os.listdir('made'))") == "[]\n"


@pytest.mark.parametrize("folder", [".git/hooks", "-dash", "/".join("d" * 40)])
async def test_a_folder_that_work_dir_does_not_take_is_named_and_not_made(bubblewrap, tmp_path, folder):
    async with AsyncSandbox("bubblewrap", work_dir=tmp_path) as box:
        result = await box.run(f"import os; os.makedirs({folder!r}); open('made', 'w').close()")
        assert sorted(each.name for each in tmp_path.iterdir()) == ["made"]
        assert result.notes or [each.note for each in result.artifacts if each.note]


async def test_many_empty_folders_are_bounded_on_both_sides(bubblewrap, tmp_path):
    for number in range(600):
        (tmp_path / f"host/{number}").mkdir(parents=True)
    async with AsyncSandbox("bubblewrap", work_dir=tmp_path, files=100_000, timeout=50) as box:
        result = await box.run(
            "import os; print(len(os.listdir('host')))\nfor n in range(30_000): os.makedirs(f'made/{n}')"
        )
        assert result.output.startswith("600\n")
        made = len(list((tmp_path / "made").iterdir()))
        assert 1_000 < made <= 20_000, "as many as a list of changed files has"
        assert result.notes


async def test_calls_of_two_tasks_find_whole_files(bubblewrap, tmp_path):
    async with AsyncSandbox("bubblewrap", work_dir=tmp_path) as box:
        await asyncio.gather(*(box.write(f"{number}.txt", str(number) * 1000) for number in range(20)))
        assert all((tmp_path / f"{number}.txt").read_text() == str(number) * 1000 for number in range(20))


@EACH_ONCE
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("open('large', 'wb').truncate(101 * 1024**2)", "larger|at most"),
        pytest.param(
            "for n in range(11_000): open(f'{n}', 'w').close()",
            "are there already|too many files",
            marks=[pytest.mark.more, pytest.mark.timeout(180)],  # the host takes ten seconds to store them
        ),
        ("open('-dash', 'w').close(); open('good', 'w').close()", "begins with `-`"),
        ("import os; os.rmdir('taken'); open('taken', 'w').write('x')", "folder of that name"),
    ],
    ids=["large", "many", "name", "folder"],
)
async def test_a_block_whose_files_can_not_be_stored_is_no_success(make, tmp_path, code, reason):
    executor = await make(work_dir=tmp_path, timeout=60)
    await run(executor, "1")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/link").symlink_to("..")
    result = await executor.execute_code_blocks([CodeBlock(code, "python")], CancellationToken())
    assert (result.outcome, result.exit_code, result.error.type) == ("error", 1, "FilesNotStored")
    assert re.search(reason, result.error.message)
    assert result.output.endswith(f"{result.error.message}\n")
    if len(result.artifacts) < 100:  # else later blocks bring the rest
        assert (await run(executor, "1")).exit_code == 0


async def test_a_command_whose_files_can_not_be_stored_is_no_success(bubblewrap, tmp_path):
    async with AsyncSandbox("bubblewrap", work_dir=tmp_path) as box:
        result = await box.exec("touch ./-dash")
        assert result.exit_code == 1
        assert "-dash could not be copied to work_dir" in result.notes[-1]
        assert (await box.exec("true")).exit_code == 0
