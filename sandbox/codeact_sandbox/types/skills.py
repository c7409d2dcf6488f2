"""Agent Skills: folders with instructions in SKILL.md, which code has in /skills. The format is at agentskills.io."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from codeact_sandbox.types.filenames import printable, printable_text
from codeact_sandbox.types.host_paths import parse_path
from codeact_sandbox.types.limits import parse_names
from codeact_sandbox.types.paths import SKILLS

FILE = "SKILL.md"
MAX_SKILLS = 100
MAX_FILES = 2000
MAX_BYTES = 64 * 1024**2
MAX_FILE_BYTES = 256 * 1024
MAX_DEPTH = 16
MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1024
MAX_TOOLS = 100
MAX_SHOWN_CHARS = 8000
MAX_FIELDS_CHARS = 16 * 1024  # YAML that is made for it takes a second for 32 KiB
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")


@dataclass(frozen=True)
class Skill:
    """A skill.

    Args:
        name: Its name, which is also that of its folder.
        description: What it does, and when to use it.
        folder: Its folder on the host, without symbolic links.
        allowed_tools: Tools that its author wants allowed. They allow nothing here: `approve_tool` decides about each call.
    """

    name: str
    description: str
    folder: Path
    allowed_tools: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        return f"{SKILLS}/{self.name}"


def find_skills(paths: Iterable[Path | str]) -> list[Skill]:
    """Read skills.

    Args:
        paths: Folders of skills, or folders that have such folders in them.

    Raises:
        ValueError: One can't be used; the message says which and why, in one line.
    """
    found: dict[str, Skill] = {}
    for path in paths:
        for folder in _folders_in(Path(path)):
            skill = _read(folder)
            other = found.setdefault(skill.name, skill)
            if other.folder != skill.folder:
                raise ValueError(
                    f"two skills are called {skill.name}: {_shown(other.folder)} and {_shown(folder)}; leave one out"
                )
            if len(found) > MAX_SKILLS:
                raise ValueError(f"skills= has more than {MAX_SKILLS} skills: name fewer folders")
    return list(found.values())


def has_skills(folder: Path) -> bool:
    try:
        return any((each / FILE).is_file() for each in folder.iterdir())
    except OSError:
        return False


def parse_skills(value: Sequence[Path | str]) -> list[str]:
    paths = [parse_path("skills", path) for path in parse_names("skills", value)]
    find_skills(paths)
    return paths


def describe_skills(skills: Sequence[Skill], most_chars: int = MAX_SHOWN_CHARS) -> str:
    """Describe skills to a model: a line for each, in about so many characters."""
    if not skills:
        return ""
    room = max(40, most_chars // len(skills))
    lines = [
        "Skills: folders with instructions, read-only. Before a task that a skill is for, print its SKILL.md, and follow it; its "
        "paths are relative to its folder, and its scripts run here, in code:"
    ]
    for skill in skills:
        tools = f" (tools: {', '.join(skill.allowed_tools)})" if skill.allowed_tools else ""
        text = printable_text(" ".join(f"{skill.description}{tools}".split())).replace("```", "'''")
        lines.append(f"- {skill.target}: {text if len(text) <= room else f'{text[: room - 1]}…'}")
    return "\n".join(lines)


def _shown(path: Path) -> str:
    return printable(str(path))


def _folders_in(path: Path) -> list[Path]:
    try:
        path = path.resolve(strict=True)
        if (path / FILE).is_file():
            return [path]
        found = sorted(each.resolve() for each in path.iterdir() if (each / FILE).is_file())
    except (OSError, RuntimeError) as error:  # RuntimeError: symbolic links in a circle, before Python 3.13
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"skills={printable(str(path))!r} can't be read: {reason}") from None
    if not found:
        raise ValueError(f"skills={_shown(path)!r} has no skill: a skill is a folder with a file {FILE}")
    for each in found:
        if not each.is_relative_to(path):
            raise ValueError(f"skills={_shown(path)!r} has a link that leads out of it, to {_shown(each)}: name that")
    return found


def _read(folder: Path) -> Skill:
    try:
        _check_files(folder)
        return _checked(folder, read_front_matter(_text(folder / FILE)))
    except UnicodeDecodeError:
        reason = f"its {FILE} is not UTF-8 text"
    except OSError as error:
        reason = f"{printable(str(error.filename))} can't be read: {error.strerror}"
    except ValueError as error:
        reason = str(error)
    raise ValueError(f"the skill {_shown(folder)} can't be used: {reason}")


def _text(path: Path) -> str:
    with open(path, "rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"its {FILE} has more than {MAX_FILE_BYTES // 1024} KiB: move parts into files beside it")
    return data.decode("utf-8-sig")


def _checked(folder: Path, fields: dict[str, str | list[str]]) -> Skill:
    name, description, tools = (fields.get(key, "") for key in ("name", "description", "allowed-tools"))
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARS:
        raise ValueError(
            f"its name must be lower-case letters, digits and single hyphens, at most {MAX_NAME_CHARS}, not {str(name)[:80]!r}"
        )
    if name != folder.name:
        raise ValueError(f"its name is {name!r}, and its folder must have the same")
    if not isinstance(description, str) or not description.strip():
        raise ValueError("its description is missing: say what it does, and when to use it")
    listed = re.findall(r"[^\s(),]+(?:\([^)]{0,200}\))?", tools) if isinstance(tools, str) else tools
    allowed = tuple(each[:MAX_NAME_CHARS] for each in listed[:MAX_TOOLS])
    return Skill(
        name, description.strip()[:MAX_DESCRIPTION_CHARS], folder, allowed
    )  # published skills have longer ones


def _check_files(folder: Path) -> None:
    """Check that a folder is small, has files and folders only, and that its links stay in it."""
    count = size = 0
    todo = [(folder, 0)]
    while todo:
        current, depth = todo.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"its folders are nested deeper than {MAX_DEPTH}")
        with os.scandir(current) as entries:
            for entry in entries:
                count += 1
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    todo.append((Path(entry.path), depth + 1))
                elif stat.S_ISLNK(info.st_mode):
                    if not Path(os.path.realpath(entry.path)).is_relative_to(folder):
                        raise ValueError(f"its link {printable(os.path.relpath(entry.path, folder))} leads out of it")
                elif not stat.S_ISREG(info.st_mode):
                    raise ValueError(f"{printable(os.path.relpath(entry.path, folder))} is neither a file nor a folder")
                size += info.st_size
                if count > MAX_FILES or size > MAX_BYTES:
                    raise ValueError(f"it has more than {MAX_FILES:,} files, or more than {MAX_BYTES // 1024**2} MiB")


def read_front_matter(text: str) -> dict[str, str | list[str]]:
    """Read the name, the description and the allowed tools above the text of a SKILL.md: texts, or lists of texts."""
    yaml: Any = import_module("yaml")  # which a sandbox without skills does not need
    parts = re.split(r"^---[ \t]*$", text, maxsplit=2, flags=re.MULTILINE)
    if len(parts) < 3 or parts[0]:
        raise ValueError(f"its {FILE} must begin with fields between two lines of ---")
    if len(parts[1]) > MAX_FIELDS_CHARS:
        raise ValueError(f"its fields have more than {MAX_FIELDS_CHARS:,} characters")
    try:
        fields = yaml.load(parts[1], yaml.BaseLoader)  # whose values are texts, lists and dicts
    except (yaml.YAMLError, RecursionError) as error:
        problem = getattr(error, "problem", None) or "nested too deeply"
        raise ValueError(f"the fields of its {FILE} are not YAML: {printable(problem)}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"the fields of its {FILE} are not YAML: no names with values")  # noqa: TRY004 - what callers expect
    read: dict[str, str | list[str]] = {}
    for key in ("name", "description", "allowed-tools"):
        value = fields.get(key, "")
        read[key] = list(map(str, value)) if isinstance(value, list) else " ".join(str(value).split())
    return {key: value for key, value in read.items() if value}
