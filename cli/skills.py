"""The skills that a command offers its model; they are told before they are used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autogen_codeact.cli.exit import CommandError, say
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.skills import find_skills, has_skills

FOUND = Path(".agents", "skills")


def with_skills(choice: SandboxChoice) -> SandboxChoice:
    """Add the skills of the current folder, unless others are named or none are wanted, and say which skills there are."""
    if choice.no_skills and choice.skills:
        raise CommandError("--skills names skills, and --no-skills leaves them out: give one of the two.")
    found = FOUND.absolute()
    if not choice.no_skills and not choice.skills and has_skills(found):
        choice = replace(choice, skills=[found])
    if choice.skills:
        try:
            names = ", ".join(skill.name for skill in find_skills(choice.skills))
        except ValueError as error:
            hint = " (--no-skills leaves the skills of .agents/skills out)" if choice.skills == [found] else ""
            raise CommandError(f"{error}{hint}.") from None
        say(f"skills, from {', '.join(printable(str(path)) for path in choice.skills)}: {names}")
    return choice
