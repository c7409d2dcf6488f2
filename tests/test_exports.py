"""Exports of the packages: the table of names, and the imports for type checkers, name the same objects."""

import ast
import importlib
from pathlib import Path

import pytest


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
