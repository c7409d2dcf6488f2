"""Exports of the packages, and one import path for each module."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def for_type_checkers(source: Path) -> dict[str, str]:
    """The names that are imported where a type checker looks, and the module that each is from."""
    (block,) = (
        node
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


@pytest.mark.parametrize(
    "package",
    [
        "codeact_sandbox",
        "autogen_codeact.executors",
        "autogen_codeact.agents",
        "autogen_codeact.teams",
        "autogen_codeact.runs",
        "autogen_codeact.batch",
        "autogen_codeact.viewer",
    ],
)
def test_type_checkers_and_the_interpreter_see_the_same_names(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__file__ is not None
    homes = for_type_checkers(Path(module.__file__))
    assert module.__all__ == sorted(homes) == dir(module)
    for name, home in homes.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
    with pytest.raises(AttributeError, match=f"^module '{package}' has no attribute 'nothing'$"):
        module.nothing  # noqa: B018


@pytest.mark.parametrize("name", ["agents", "executors", "teams"])
def test_short_name_is_refused(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=50
    )
    assert done.stderr.splitlines()[-1] == f"ModuleNotFoundError: No module named '{name}'"


def test_three_folders_are_links_of_the_package() -> None:
    links = sorted(path.name for path in (ROOT / "autogen_codeact").rglob("*") if path.is_symlink())
    assert links == ["agents", "executors", "teams"]
