"""`skills=`: what a skill is, what is refused, and that code can read and run it in /skills, and not write."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from codeact_sandbox import AsyncSandbox
from codeact_sandbox.backends.docker import launcher
from codeact_sandbox.types.skills import Skill, find_skills, read_front_matter
from tests.cases import case
from tests.sandbox.bubblewrapped import open_folder

Make = Callable[..., Path]
BODY = "# How\nRun scripts/count.py with a text.\n"


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that every user can read."""
    with open_folder() as folder:
        yield folder


@pytest.fixture
def make(root: Path) -> Make:
    """Makes a skill with these fields beside name and description."""

    def making(
        folder: str = "pdf", *lines: str, name: str | None = None, description: str = "Reads PDF files."
    ) -> Path:
        path = root / folder
        (path / "scripts").mkdir(parents=True)
        fields = [f"name: {path.name if name is None else name}", f"description: {description}", *lines]
        (path / "SKILL.md").write_text("\n".join(["---", *fields, "---", BODY]))
        (path / "scripts/count.py").write_text("import sys; print(len(sys.argv[1]))\n")
        return path

    return making


LOOK = """
import os, subprocess, sys
print(sorted(os.listdir("/skills")), open("/skills/pdf/SKILL.md").read().count("scripts/count.py"))
print(subprocess.run([sys.executable, "/skills/pdf/scripts/count.py", "four"], capture_output=True, text=True).stdout)
for act in (
    lambda: open("/skills/pdf/SKILL.md", "a"), lambda: open("/skills/pdf/new", "w"), lambda: os.mkdir("/skills/new"),
    lambda: os.remove("/skills/pdf/SKILL.md"), lambda: os.symlink("/", "/skills/pdf/x"), lambda: os.chmod("/skills/pdf", 0o777),
):
    try: act()
    except OSError as error: pass
    else: print("written")
"""


@pytest.mark.parametrize("backend", ["docker", "docker, sent", "bubblewrap"])
async def test_skills_are_in_the_sandbox(
    backend: str, root: Path, make: Make, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    request.getfixturevalue("bubblewrap" if backend == "bubblewrap" else "sandbox_image")
    if "sent" in backend:
        monkeypatch.setattr(launcher, "is_local", lambda _: False)
    make("pdf")
    make("more/xlsx")
    (root / "notes").mkdir()
    data = root / "notes" / "one.csv"
    data.write_text("a")
    async with AsyncSandbox(
        backend.split(",", maxsplit=1)[0], skills=[root / "pdf", root / "more"], data=[data]
    ) as box:  # type: ignore[arg-type]
        assert [(each.name, each.folder) for each in box.skills] == [
            ("pdf", root / "pdf"),
            ("xlsx", root / "more/xlsx"),
        ]
        assert (await box.run(LOOK)).output == "['pdf', 'xlsx'] 1\n4\n\n"
        assert (await box.run("print(open('/data/one.csv').read())")).output == "a\n"


def test_fields_are_read_as_yaml_reads_them(make: Make) -> None:
    for lines, expected in {
        ("name: a", "description: Does it. # really"): {"name": "a", "description": "Does it."},
        ("description: 'It''s: \"so\"'",): {"description": 'It\'s: "so"'},
        ('description: "a \\"b\\" # c"', "x:", "  y: 1", "z: 2"): {"description": 'a "b" # c'},
        ('description: "It\\u00eds \\', '  \\ so \\x41"  # c', 'metadata: {"a": [1]}', "x.y:", "  {", "  }"): {
            "description": "Itís so A"
        },
        ("description: 'One", "- two", "", "three: 4'", "name: a"): {"description": "One - two three: 4", "name": "a"},
        ("description: >-", "  One", "  two.", "", "# comment", "name: a"): {"description": "One two.", "name": "a"},
        ("description: One", "  two.", "license: MIT"): {"description": "One two."},
        ("allowed-tools:", "  - Bash(git:*)", "  - 'Read'"): {"allowed-tools": ["Bash(git:*)", "Read"]},
        ("allowed-tools: [Read, Write]",): {"allowed-tools": ["Read", "Write"]},
    }.items():
        with case(lines):
            text = "\n".join(["---", *lines, "---", "body: not read"])
            assert read_front_matter(text) == expected
            plain = {
                key: value for key, value in _yaml(lines).items() if key in ("name", "description", "allowed-tools")
            }
            assert {
                key: value if isinstance(value, list) else " ".join(value.split()) for key, value in plain.items()
            } == {key: value if isinstance(value, list) else " ".join(value.split()) for key, value in expected.items()}
    folder = make("pdf", "allowed-tools: Bash(git:*) crm.find", "metadata:", '  version: "1.0"')
    assert find_skills([folder]) == [Skill("pdf", "Reads PDF files.", folder.resolve(), ("Bash(git:*)", "crm.find"))]


def _yaml(lines: tuple[str, ...]) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load("\n".join(lines))
    return loaded


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["name: pdf"], "its description is missing: say what it does, and when to use it"),
        (["description: x"], "its name must be lower-case letters, digits and single hyphens, at most 64, not ''"),
        (["name: PDF", "description: x"], "its name must be lower-case letters, .*, not 'PDF'"),
        (["name: a--b", "description: x"], "its name must be lower-case letters, .*, not 'a--b'"),
        (["name: other", "description: x"], "its name is 'other', and its folder must have the same"),
        (["name: pdf", "description: [x]"], "its description is missing: say what it does, and when to use it"),
        (["name: pdf", "description: 'x"], "the fields of its SKILL.md are not YAML: found unexpected end of stream"),
        (["name: pdf", "{{"], "the fields of its SKILL.md are not YAML: could not find expected ':'"),
        (["- name"], "the fields of its SKILL.md are not YAML: no names with values"),
        (["[" * 16_000], "the fields of its SKILL.md are not YAML: nested too deeply"),
        (["name: pdf", "allowed-tools: " + "a(" * 8200], "its fields have more than 16,384 characters"),
    ],
)
def test_broken_front_matter_is_one_clear_line(lines: list[str], words: str, make: Make) -> None:
    folder = make("pdf")
    (folder / "SKILL.md").write_text("\n".join(["---", *lines, "---"]))
    with pytest.raises(ValueError, match=f"^the skill .*/pdf can't be used: {words}$"):
        find_skills([folder])


def test_what_is_no_skill_or_a_bomb_is_one_clear_line(root: Path, make: Make) -> None:
    def after(change: Callable[[Path], object], words: str) -> None:
        folder = make(f"s{len(list(root.iterdir()))}")
        change(folder)
        with case(words), pytest.raises(ValueError, match=f"^the skill .*/{folder.name} can't be used: {words}$"):
            find_skills([folder])

    def nested(folder: Path) -> None:
        (folder / "/".join("abcdefghijklmnopqr")).mkdir(parents=True)

    def large(folder: Path) -> None:
        with open(folder / "hole", "wb") as file:
            file.truncate(1 << 40)

    after(
        lambda f: (f / "SKILL.md").write_text("# text"), "its SKILL.md must begin with fields between two lines of ---"
    )
    after(lambda f: (f / "SKILL.md").write_bytes(b"---\nname: \xff\n---"), "its SKILL.md is not UTF-8 text")
    after(lambda f: (f / "SKILL.md").write_text("-" * 300_000), "its SKILL.md has more than 256 KiB: .*")
    after(lambda f: (f / "away").symlink_to("/etc"), "its link away leads out of it")
    after(lambda f: (f / "scripts/up").symlink_to("../../other"), "its link scripts/up leads out of it")
    after(lambda f: os.mkfifo(f / "pipe"), "pipe is neither a file nor a folder")
    after(nested, "its folders are nested deeper than 16")
    after(large, "it has more than 2,000 files, or more than 64 MiB")
    after(lambda f: [(f / str(n)).touch() for n in range(2001)], "it has more than 2,000 files, or more than 64 MiB")
    (make("fine") / "inner").symlink_to("scripts")
    assert [each.name for each in find_skills([root / "fine"])] == ["fine"]
