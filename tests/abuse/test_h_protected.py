"""H13 and K5. Files that programs on the host act on are not written back or exported, in any spelling of their names."""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autogen_codeact.runs import export_files, load_run
from autogen_codeact.runs.events import BlockFinished
from autogen_codeact.runs.results import ArtifactRecord, ResultRecord, StoredFile
from autogen_codeact.runs.text import download_name
from codeact_sandbox.types.protected_names import protected_name
from tests.sandbox.sandboxes import out, run

from ..runs.logs import lines, started, write_log
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


REPOSITORY = ["repo/HEAD", "repo/objects/x", "repo/refs/x"]


def foreign_run(parent, files):
    """Return the folder of a run whose log names files that the code has made, with their content."""
    parent.mkdir(exist_ok=True)
    stored = {name: StoredFile(sha256=hashlib.sha256(data).hexdigest(), size=len(data)) for name, data in files.items()}
    artifacts = [
        ArtifactRecord(name=name, size=file.size, media_type="text/plain", file=file) for name, file in stored.items()
    ]
    record = ResultRecord(kind="sandbox", exit_code=0, output="", artifacts=artifacts)
    folder = write_log(parent / "run", lines([started(), BlockFinished(agent="a", number=1, result=record)]))
    (folder / "files").mkdir()
    for name, file in stored.items():
        (folder / "files" / str(file.sha256)).write_bytes(files[name])
    return folder


def written_below(folder, order=()):
    """Return the names of the files in a folder, in the order of a list."""
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    return sorted(names, key=lambda name: order.index(name) if order else name)


# Case K5.
def test_an_export_of_files_leaves_protected_names_out(tmp_path, caplog):
    for number, name in enumerate(VARIANTS):
        out = tmp_path / f"out-{number}"
        run = load_run(foreign_run(tmp_path / str(number), {name: b"planted", "a.txt": b"text"}))
        assert export_files(run, out) == ["a.txt"], name
        assert written_below(out) == ["a.txt"], name
        assert "Not written, because programs on the host act on such files" in caplog.messages[-1], name
    harmless = [*HARMLESS, *REPOSITORY]
    run = load_run(foreign_run(tmp_path, dict.fromkeys(harmless, b"text")))
    written = export_files(run, tmp_path / "out")
    assert written == written_below(tmp_path / "out", harmless)
    assert len(written) == len(harmless) - 1  # the last file that would make a repository
    assert set(HARMLESS) < set(written)


# Case K5.
def test_a_download_has_no_protected_name():
    for name in VARIANTS:
        for each in (name, name.rpartition("/")[2]):
            assert not protected_name(download_name(each)), each
    assert [download_name(name) for name in ("sub/a.txt", "mise.toml", ".envrc", "..")] == [
        "a.txt",
        "file-mise.toml",
        "envrc",
        "",
    ]
