"""Which modules the agents import: nothing of how a sandbox is started and reached; and no cycles."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import autogen_codeact.agents
import autogen_codeact.teams
from tests.cases import case

ROOT = "autogen_codeact"
OURS = (ROOT, "codeact_sandbox")


def modules(package: str) -> dict[str, Path]:
    """The modules of a package, by name."""
    folder = Path(str(getattr(autogen_codeact, package).__file__)).parent
    return {f"{ROOT}.{package}.{path.stem}": path for path in folder.glob("*.py") if path.stem != "__init__"}


def imported(path: Path) -> dict[str, set[str]]:
    """What a module imports of ours, also where only a type checker looks: names by module."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(OURS):
            found.setdefault(str(node.module), set()).update(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update({alias.name: set() for alias in node.names if alias.name.startswith(OURS)})
    return found


INSIDE_A_SANDBOX = (
    *(f"{ROOT}.executors.docker", f"{ROOT}.executors.bubblewrap", f"{ROOT}.executors.pool"),
    *(
        "codeact_sandbox.async_sandbox",
        "codeact_sandbox.backends.",
        "codeact_sandbox.egress",
        "codeact_sandbox.runner",
        "codeact_sandbox.packages",
        "codeact_sandbox.pool",
        "codeact_sandbox.files.sync",
    ),
    *("codeact_sandbox.host.client", "codeact_sandbox.host.connection", "codeact_sandbox.host.protocol"),
)


def test_agents_import_nothing_of_how_a_sandbox_is_started_and_reached() -> None:
    for name in modules("agents"):
        with case(name):
            found = list(imported(modules("agents")[name]))
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
