"""Which modules the agents import: of the executors' side, only what `autogen_codeact.executors` exports; and no cycles."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import autogen_codeact.agents
import autogen_codeact.teams

ROOT = "autogen_codeact"


def modules(package: str) -> dict[str, Path]:
    """The modules of a package, by name."""
    folder = Path(str(getattr(autogen_codeact, package).__file__)).parent
    return {f"{ROOT}.{package}.{path.stem}": path for path in folder.glob("*.py") if path.stem != "__init__"}


def imported(path: Path) -> dict[str, set[str]]:
    """What a module imports of ours, also where only a type checker looks: names by module."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(ROOT):
            found.setdefault(str(node.module), set()).update(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update({alias.name: set() for alias in node.names if alias.name.startswith(ROOT)})
    return found


@pytest.mark.parametrize("name", modules("agents"))
def test_agents_import_only_what_executors_export(name: str) -> None:
    others = {module for module in imported(modules("agents")[name]) if not module.startswith(f"{ROOT}.agents")}
    assert others <= {f"{ROOT}.executors"}


@pytest.mark.parametrize("package", ["agents", "teams"])
def test_modules_of_a_package_import_each_other_without_cycles(package: str) -> None:
    paths = modules(package)
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        graph[name] = set()
        for module, names in imported(path).items():
            graph[name] |= {module} | {f"{module}.{each}" for each in names} if module.startswith(ROOT) else set()
        graph[name] &= paths.keys()
    TopologicalSorter(graph).prepare()  # raises CycleError
