"""What of `work_dir` is sent: not secrets, what tools make, and what `.gitignore` or the user leaves out."""

import time
from pathlib import Path

import pytest

from codeact_sandbox import AsyncSandbox
from codeact_sandbox.files.selection import Patterns, Selection
from codeact_sandbox.files.workspace import Workspace
from tests.sandbox.files.workspaces import send

SECRETS = [
    ".env",
    ".env.local",
    "deploy/.ENV",
    ".ssh/config",
    "id_ed25519",
    "tls/server.key",
    "cert.pem",
    ".aws/credentials",
]
SECRETS += [".netrc", ".git-credentials", ".npmrc", ".kube/config", "app/credentials.json"]
MADE = [".git/config", "node_modules/a/index.js", "web/node_modules/a.js", ".venv/bin/python", "a/__pycache__/a.pyc"]
MADE += [".mypy_cache/x", ".tox/y"]


def sent(root: Path, **options: list[str]) -> list[str]:
    return sorted(send(Workspace(root, selection=Selection(**options))))


def fill(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")


@pytest.mark.parametrize("name", [*SECRETS, *MADE])
def test_secrets_and_folders_of_tools_are_sent_only_if_they_are_included(tmp_path: Path, name: str) -> None:
    fill(tmp_path, name, "main.py", "src/key.py", "environment.yml")
    assert sent(tmp_path) == ["environment.yml", "main.py", "src/key.py"]
    parts = name.split("/")
    wanted = next(each for each in parts if Selection().leaves_out(each, (), is_folder=each != parts[-1]))
    assert name in sent(tmp_path, include=[wanted])


def test_gitignore_files_count_for_their_folders_and_can_not_add_secrets(tmp_path: Path) -> None:
    fill(
        tmp_path,
        ".env",
        "a.log",
        "keep.log",
        "src/a.log",
        "src/b.tmp",
        "build/x",
        "src/build/y",
        "docs/b.tmp",
        "only/z",
    )
    (tmp_path / ".gitignore").write_text("# comment\n*.log\n!keep.log\n/build/\n!.env\nonly/**\n")
    (tmp_path / "src/.gitignore").write_text("*.tmp\n")
    assert sent(tmp_path) == [".gitignore", "docs/b.tmp", "keep.log", "src/.gitignore", "src/build/y"]


def test_exclude_and_include_are_patterns_like_those_of_gitignore(tmp_path: Path) -> None:
    fill(tmp_path, "a.csv", "data/b.csv", "data/raw/c.csv", "data/raw/d.txt", ".env", "notes.md")
    assert sent(tmp_path, exclude=["*.csv", "notes.*"]) == ["data/raw/d.txt"]
    assert sent(tmp_path, exclude=["data/**/*.csv"], include=[".env"]) == [
        ".env",
        "a.csv",
        "data/raw/d.txt",
        "notes.md",
    ]
    assert sent(tmp_path, exclude=["/data"]) == ["a.csv", "notes.md"]


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("*a" * 100 + "b", "a" * 250), ("**/a/" * 60 + "b", "a/" * 60 + "c"), ("[" * 400, "a"), ("?*" * 200, "a" * 255)],
)
def test_a_pattern_that_code_has_written_takes_linear_time(pattern: str, name: str) -> None:
    patterns = Patterns([pattern] * 200)
    began = time.monotonic()
    patterns.find(name.split("/"), is_folder=False)
    assert time.monotonic() - began < 2


async def test_what_is_left_out_is_said_once_and_never_replaced(bubblewrap: None, tmp_path: Path) -> None:
    fill(tmp_path, ".env", "main.py", *(f"node_modules/{number // 1000}/{number}.js" for number in range(12_000)))
    async with AsyncSandbox("bubblewrap", work_dir=tmp_path, timeout=30) as box:
        first = await box.run("import os; print(sorted(os.listdir()))")
        assert first.output == "['main.py']\n"
        assert [note for note in first.notes if ".env, node_modules/ (secrets" in note and "--include" in note]
        result = await box.run("open('.env', 'w').write('mine'); open('out.txt', 'w').write('y')")
        assert (tmp_path / "out.txt").read_text() == "y"
        assert (tmp_path / ".env").read_text() == "x"
        assert next(each.note for each in result.artifacts if each.name == ".env").endswith("(--include) sends it.")
        assert not any("secrets" in note for note in result.notes)
        # What code has made itself is like any other file, whatever its name.
        for text in ("1", "2"):
            await box.run(f"open('.env.mine', 'w').write({text!r})")
            assert (tmp_path / ".env.mine").read_text() == text
