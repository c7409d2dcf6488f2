"""Exports of the packages. Each name is listed once: as an import for type checkers, which is made when the name is used."""

import ast
import importlib
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest


def for_type_checkers(source: Path) -> dict[str, str]:
    """The names that are imported where a type checker looks, and the module that each is from."""
    (block,) = (node for node in ast.parse(source.read_text()).body if isinstance(node, ast.If))
    return {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


@pytest.mark.parametrize(
    "package",
    [
        "autogen_codeact.sandbox",
        "autogen_codeact.executors",
        "autogen_codeact.agents",
        "autogen_codeact.teams",
        "autogen_codeact.runs",
        "autogen_codeact.telemetry",
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


def test_a_package_without_its_source_has_the_same_names(tmp_path: Path) -> None:
    sandbox = Path(importlib.import_module("autogen_codeact.sandbox").__file__ or "").parent
    target = tmp_path / "autogen_codeact" / "sandbox"
    target.mkdir(parents=True)
    (tmp_path / "autogen_codeact" / "__init__.py").touch()
    for source in sandbox.glob("*.py"):
        py_compile.compile(str(source), cfile=str(target / f"{source.stem}.pyc"), doraise=True)
    program = "from autogen_codeact import sandbox; print(sandbox.__file__, *sandbox.__all__); print(sandbox.Artifact)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    names, artifact = run.stdout.splitlines()
    assert names.split() == [str(target / "__init__.pyc"), *sorted(for_type_checkers(sandbox / "__init__.py"))]
    assert artifact == "<class 'autogen_codeact.sandbox.types.result.Artifact'>"
