"""What the sandbox library imports, and which way imports between our packages point."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# From the lowest to the highest: a package imports itself and those before it.
LAYERS = ("sandbox", "executors", "agents", "teams", "telemetry", "runs", "batch", "viewer", "cli")
OURS = ("autogen_codeact", "codeact_sandbox")
FOREIGN = (
    "autogen_core",
    "autogen_ext",
    "autogen_agentchat",
    "autogen_codeact",
    "docker",
    "requests",
    "typer",
    "rich",
    "PIL",
)

PROGRAM = """
import sys
{code}
print(*sorted(name for name in sys.modules if name.partition(".")[0] in {foreign}))
"""


def modules_of(code: str) -> list[str]:
    """Run code in a fresh interpreter; the modules of other projects that are imported afterwards."""
    program = PROGRAM.format(code=code, foreign=FOREIGN)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd="/")
    return run.stdout.split()


@pytest.mark.parametrize(
    "code",
    [
        "import codeact_sandbox",
        "import codeact_sandbox.types.options",
        "from codeact_sandbox import AsyncSandbox; AsyncSandbox(backend='bubblewrap')",
    ],
)
def test_the_sandbox_imports_no_autogen_no_docker_and_no_typer(code: str) -> None:
    assert modules_of(code) == []


def test_modules_of_backends_files_and_tools_import_neither_autogen_nor_the_docker_sdk() -> None:
    library = ROOT / "sandbox" / "codeact_sandbox"
    paths = [path for name in ("backends", "files", "tools") for path in sorted((library / name).rglob("*.py"))]
    modules = [module_name(path) for path in paths]
    assert len(modules) > 30
    assert [name for name in modules_of(f"import {', '.join(modules)}") if not name.startswith("rich")] == []


def source_files() -> list[Path]:
    ours = ROOT / "autogen_codeact"
    found = [path for name in LAYERS[1:] for path in (ours / name).rglob("*.py")] + [ours / "telemetry.py"]
    return sorted([*found, *(ROOT / "sandbox").rglob("*.py")])


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    own = parts[1:] if parts[0] == "sandbox" else parts
    return ".".join(own[:-1] if own[-1] == "__init__" else own)


@functools.cache
def imported_by(path: Path, known: frozenset[str]) -> set[str]:
    """Return our modules that a file imports, also those only for type checkers and those inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(OURS):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in known else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith(OURS)}
    return found


def test_imports_between_our_packages_point_down() -> None:
    upward: dict[str, set[str]] = {}
    known = frozenset(map(module_name, source_files()))
    for path in source_files():
        parts = module_name(path).split(".")
        layer = "sandbox" if parts[0] == "codeact_sandbox" else parts[1]
        for name in imported_by(path, known):
            parts = name.split(".")
            imported = "sandbox" if parts[0] == "codeact_sandbox" else parts[1] if len(parts) > 1 else ""
            if imported in LAYERS and LAYERS.index(imported) > LAYERS.index(layer):
                upward.setdefault(str(path.relative_to(ROOT)), set()).add(imported)
    assert upward == {}


def test_there_are_no_import_cycles() -> None:
    known = frozenset(map(module_name, source_files()))
    paths = {module_name(path): path for path in source_files() if "runner" not in path.parts}
    # The names that a package exports lazily are not imports of the package itself.
    graph = {
        name: imported_by(path, known) & paths.keys() - {name}
        for name, path in paths.items()
        if path.name != "__init__.py"
    }
    assert find_cycles(graph) == []


def find_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return one cycle for each module from which a module of its own path is reached."""
    cycles: list[list[str]] = []
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            cycles.append(path[path.index(name) :])
            return
        if name in done:
            return
        for each in sorted(graph.get(name, ())):
            visit(each, [*path, name])
        done.add(name)

    for name in sorted(graph):
        visit(name, [])
    return cycles
