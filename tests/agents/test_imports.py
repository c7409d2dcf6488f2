"""Which modules the agents import: nothing of how a sandbox is started and reached; and no cycles."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import autogen_codeact.agents
import autogen_codeact.teams
from tests.cases import case

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


INSIDE_A_SANDBOX = (
    *("executors.docker", "executors.bubblewrap", "executors.pool", "sandbox.async_sandbox", "sandbox.managed_sandbox"),
    *(
        "sandbox.backends.",
        "sandbox.egress",
        "sandbox.runner",
        "sandbox.packages",
        "sandbox.pool",
        "sandbox.files.sync",
    ),
    *("sandbox.host.client", "sandbox.host.connection", "sandbox.host.protocol"),
)


def test_agents_import_nothing_of_how_a_sandbox_is_started_and_reached() -> None:
    for name in modules("agents"):
        with case(name):
            found = [module.removeprefix(f"{ROOT}.") for module in imported(modules("agents")[name])]
            assert [module for module in found if module.startswith(INSIDE_A_SANDBOX)] == []


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
