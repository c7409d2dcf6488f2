"""H. Files that programs on the host act on automatically are not written back, in any spelling of their names."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.sandboxes import out, run

from .subject import Subject, each_engine

NOTE = "is not written back, because programs on the host act on it automatically."
VARIANTS = [
    *(".git/config", "sub/.git/hooks/post-checkout", ".GIT/config", ".Git/config", ".git./config", ".git /config"),
    *(".gi\u034ft/config", ".git\ufe0f/config", ".g\u0130t/config", ".git\u3164/config"),
    *(
        ".git",
        "deep/er/.git",
        ".g\u200cit/config",
        "\ufeff.git/config",
        "\uff0egit/config",
        ".\U0001d406it/config",
        "git~1/config",
        "GIT~2/x",
    ),
    *(
        ".git::$INDEX_ALLOCATION/config",
        ".hg/hgrc",
        ".svn/x",
        ".envrc",
        "sub/.ENVRC",
        ".direnv/x",
        ".vscode/tasks.json",
    ),
    *(".idea/x.xml", ".husky/pre-commit", ".pre-commit-config.yaml", "PRE-CO~1.YAM", ".devcontainer/devcontainer.json"),
    *(".claude/settings.json", ".mcp.json", ".bashrc", ".ssh/authorized_keys", ".pdbrc", ".exrc", ".dir-locals.el"),
    *(".venv/bin/python", ".venv/lib/python3.12/site-packages/x.pth"),
]
HARMLESS = [
    ".github/workflows/ci.yml",
    ".gitignore",
    ".gitattributes",
    ".env",
    "git",
    "my.git/x",
    "x.envrc",
    "HEAD",
    "a~1.txt",
]
WRITE = """
import os
for name in {names!r}:
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    if not os.path.isdir(name):
        open(name, "w").write("planted")
"""


def git(folder: Path, *arguments: str) -> str:
    """Run git as somebody does who works in the folder."""
    command = ["git", "-c", "safe.directory=*", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=20)
    return done.stdout + done.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository on the host."""
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "-q", ".")
    (folder / "file").write_text("text")
    return folder


def files_in(folder: Path) -> dict[str, bytes]:
    """Regular files with their content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def planted(folder: Path) -> set[str]:
    """The files that the code has brought to the host."""
    return {name for name, content in files_in(folder).items() if content == b"planted"}


# Case H13.
async def test_settings_and_hooks_of_a_repository_are_unchanged(subject, repository):
    before = files_in(repository)
    canary = repository.parent / "ran"
    await subject.start({"delete_tmp_files": True, "include": [".git"]})
    code = f"""
        import os
        open(".git/config", "a").write("[core]\\n\\tfsmonitor = touch {canary}; false\\n")
        open(".git/hooks/post-index-change", "w").write("#!/bin/sh\\ntouch {canary}\\n")
        os.chmod(".git/hooks/post-index-change", 0o755)
        open("made", "w").write("made")
    """
    result = await subject.run(code)
    assert result.outcome == "ok", result
    files = {item.name: item.note for item in result.artifacts}
    assert set(files) == {"made", ".git/config", ".git/hooks/post-index-change"}
    assert files["made"] is None
    assert files[".git/config"] == f"not copied: `.git` {NOTE} The executor's option write_back=['.git'] allows it."
    assert [note for note in result.notes if NOTE in note] == list(result.notes)
    assert len(result.notes) == 1
    assert files_in(repository) == {**before, "made": b"made"}
    git(repository, "status")
    assert not canary.exists()
    # It has been said; the next blocks need not say it again.
    result = await subject.run(code)
    assert [item.name for item in result.artifacts] == ["made"]
    assert result.notes == ()


# Case H13.
@each_engine
async def test_no_other_spelling_is_written_back(subject: Subject) -> None:
    await subject.start({"delete_tmp_files": True})
    for name in VARIANTS:
        result = await subject.run(
            WRITE.format(names=[name]) + f"\nimport shutil\nshutil.rmtree({name.split('/')[0]!r}, True)"
        )
        assert result.outcome == "ok", result
    result = await subject.run(WRITE.format(names=VARIANTS[1:] + HARMLESS))
    assert result.outcome == "ok", result
    assert planted(subject.work_dir) == set(HARMLESS)


# Case H13.
@each_engine
async def test_no_link_of_the_host_leads_into_a_protected_folder(subject: Subject, repository: Path) -> None:
    (repository / "link").symlink_to(".git")
    before = files_in(repository / ".git")
    result = await subject.run("import os\nos.mkdir('link')\nopen('link/config', 'w').write('x')")
    assert [item.path for item in result.artifacts if item.name == "link/config"] == [None]
    assert files_in(repository / ".git") == before


@pytest.fixture
def shared() -> Iterator[Path]:
    """A git repository that an ordinary user can reach, and owns."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        os.chmod(place, 0o755)
        folder = Path(place, "work")
        folder.mkdir()
        git(folder, "init", "-q", ".")
        (folder / ".envrc").write_text("old")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 65534, 65534)
        yield folder


# Case H13.
@each_engine
async def test_protected_entries_of_a_mounted_folder_are_read_only(kind, shared, untouched):
    repository = shared
    before = files_in(repository)
    code = """
        import errno, os, shutil
        tries = {
            "append": lambda: open(".git/config", "a"),
            "create": lambda: open(".git/hooks/post-commit", "w"),
            "rename": lambda: os.rename(".git", "moved"),
            "remove": lambda: shutil.rmtree(".git"),
            "file": lambda: open(".envrc", "w"),
            "unlink": lambda: os.unlink(".envrc"),
            "other": lambda: open("other", "w"),
        }
        for name, attempt in tries.items():
            try:
                attempt()
                print(name, "done")
            except OSError as error:
                print(name, errno.errorcode[error.errno])
    """
    async with kind.make(bind_dir=repository, delete_tmp_files=True) as executor:
        found = dict(line.split() for line in (await out(executor, code)).splitlines())
    assert found == {
        **dict.fromkeys(("append", "create", "remove", "file"), "EROFS"),
        **dict.fromkeys(("rename", "unlink"), "EBUSY"),
        "other": "done",
    }
    assert files_in(repository) == {**before, "other": b""}
    async with kind.make(bind_dir=repository, delete_tmp_files=True, write_back=["*"]) as executor:
        assert (await run(executor, "open('.git/config', 'a').close(); open('.envrc', 'w').close()")).exit_code == 0
