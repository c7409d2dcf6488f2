"""Measures how large the project is, and compares it with `benchmarks/size_budget.json`.

A value above its budget is an error. A change may raise a budget only with a reason beside the number.

Run: python benchmarks/size.py [--fast]
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import io
import json
import re
import subprocess
import sys
import threading
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from itertools import combinations
from pathlib import Path
from types import FrameType
from typing import Any

from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor

ROOT = Path(__file__).resolve().parents[1]
BUDGET = ROOT / "benchmarks" / "size_budget.json"
PAUSE_S = 0.5
"""Between blocks, as a model's answer takes: files that have just changed are looked at again."""
NOT_PRODUCT = ("tests", "benchmarks", "samples", "docs")
PACKAGE, LIBRARY = "autogen_codeact", "codeact_sandbox"


def main() -> int:
    """Print a table of all measures; return 1 if one is above its budget."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fast", action="store_true", help="only what needs no sandbox and no collection of tests")
    found = static_sizes()
    if not parser.parse_args().fast:
        functions, modules = asyncio.run(functions_of_a_block())
        found |= {"functions of an agent's block": functions, "modules of an agent's block": modules}
        found["test cases"] = count_tests()
    budget = json.loads(BUDGET.read_text(encoding="utf-8"))
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:<{width}}  {value:>8,}  of {budget[name]['most']:>8,}  {budget[name]['reason']}")
    above = over_budget(found)
    print(*above, sep="\n", file=sys.stderr)
    return 1 if above else 0


def over_budget(found: dict[str, int]) -> list[str]:
    """Return a sentence for each value that is above its budget.

    Args:
        found: Values by name.
    """
    budget = json.loads(BUDGET.read_text(encoding="utf-8"))
    return [
        f"{name}: {value:,} is above the budget of {budget[name]['most']:,}. Make it smaller, or raise the budget in "
        f"{BUDGET.relative_to(ROOT)} and write the reason beside it."
        for name, value in found.items()
        if value > budget[name]["most"]
    ]


def static_sizes() -> dict[str, int]:
    """Return what can be measured by reading files."""
    files = _files()
    product = [path for path in files if path.suffix in (".py", ".js", ".css") and _is_product(path)]
    python = [path for path in product if path.suffix == ".py"]
    docs = [path for path in files if path.suffix == ".md" and path.parent == ROOT / "docs"]
    tests = [path for path in files if path.suffix == ".py" and path.is_relative_to(ROOT / "tests")]
    exported, double = public_names(python)
    return {
        "product lines": sum(map(_lines, product)),
        "code lines of Python": sum(code_lines(path.read_text(encoding="utf-8")) for path in python),
        "statements and lambdas of Python": sum(statements(path.read_text(encoding="utf-8")) for path in python),
        "pairs of folders that import each other": len(mutual_imports(python)),
        "public names": len(exported),
        "public names with two objects": len(double),
        "words in docs": sum(_words(path) for path in docs),
        "words in README": _words(ROOT / "README.md"),
        "lines of tests": sum(map(_lines, tests)),
    }


def _files() -> list[Path]:
    """Return the files of the repository, each once, without links."""
    files = [ROOT / line for line in _git("ls-files", "-z").split("\0") if line]
    return [path for path in files if path.is_file() and not path.is_symlink()]


def _is_product(path: Path) -> bool:
    return path.relative_to(ROOT).parts[0] not in NOT_PRODUCT


def code_lines(source: str) -> int:
    """Return how many lines have code: neither comments nor docstrings nor nothing.

    Args:
        source: Source code of Python.
    """
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in _docstrings(ast.parse(source)):
        lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENDMARKER, tokenize.ENCODING),
}


def statements(source: str) -> int:
    """Return how many statements and lambdas there are, however they are spread over lines.

    Args:
        source: Source code of Python.
    """
    tree = ast.parse(source)
    counted = sum(isinstance(node, ast.stmt | ast.Lambda) for node in ast.walk(tree))
    return counted - sum(1 for _ in _docstrings(tree))


def _docstrings(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield strings that are statements: docstrings, also those of constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node


def mutual_imports(files: Sequence[Path]) -> set[tuple[str, str]]:
    """Return the pairs of folders that import each other, on each level of folders.

    Args:
        files: Files of Python.
    """
    folders = {path.relative_to(ROOT).parent for path in files}
    edges: set[tuple[str, str]] = set()
    for path in files:
        own = path.relative_to(ROOT).parent
        for other in _imported_folders(path, own, folders):
            for depth in range(1, max(len(own.parts), len(other.parts)) + 1):
                pair = "/".join(own.parts[:depth]), "/".join(other.parts[:depth])
                if pair[0] != pair[1]:
                    edges.add(pair)
    names = sorted({name for pair in edges for name in pair})
    return {pair for pair in combinations(names, 2) if pair in edges and pair[::-1] in edges}


def _imported_folders(path: Path, own: Path, folders: set[Path]) -> Iterator[Path]:
    if path.name == "__init__.py":
        return  # what a package exports is no import of its own
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.level:
            base = own.parents[node.level - 2] if node.level > 1 else own
            names = [(*base.parts, *(node.module or "").split("."))]
        elif isinstance(node, ast.ImportFrom):
            names = [(*(node.module or "").split("."), alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        for name in names:
            if name[0] == LIBRARY:
                parts = ("sandbox", *name)
            else:
                parts = (
                    name[1:] if name[0] == PACKAGE else name if isinstance(node, ast.ImportFrom) and node.level else ()
                )
            known = [Path(*parts[:length]) for length in range(1, len(parts) + 1) if Path(*parts[:length]) in folders]
            if known:
                yield known[-1]


def public_names(files: Iterable[Path]) -> tuple[set[str], set[str]]:
    """Return the names that packages export, and those that are different objects in two packages.

    Args:
        files: Files of Python.
    """
    objects: dict[str, set[int]] = defaultdict(set)
    for path in files:
        folder = path.relative_to(ROOT).parent
        if path.name != "__init__.py" or "runner" in folder.parts:
            continue
        own = (
            folder.parts[1:]
            if folder.parts[0] == "sandbox"
            else (PACKAGE, *(each for each in folder.parts if each != PACKAGE))
        )
        package = import_module(".".join(own))
        for name in getattr(package, "__all__", ()):
            objects[name].add(id(getattr(package, name)))
    return set(objects), {name for name, found in objects.items() if len(found) > 1}


_NO_FUNCTIONS = ("<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


async def functions_of_a_block() -> tuple[int, int]:
    """Return how many of our functions and modules one block of an agent passes through on the host.

    The block runs in a real sandbox of bubblewrap, from `CodeActAgent.run` to its answer, after two others of the same agent.
    Each of our functions that is called in any thread meanwhile counts once, lambdas too.
    """

    called: set[tuple[str, str]] = set()
    counting = False

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        own = event == "call" and code.co_filename.startswith(str(ROOT))
        if counting and own and code.co_name not in _NO_FUNCTIONS:
            called.add((code.co_filename, f"{code.co_qualname}:{code.co_firstlineno}"))

    threading.setprofile(profile)
    sys.setprofile(profile)
    model = ReplayChatCompletionClient(["```python\n1 + 1\n```", "It is 2."] * 3)
    async with BubblewrapCommandLineCodeExecutor(mode="session") as executor:
        agent = CodeActAgent("counted", executor, model_client=model)
        for _ in range(2):
            await agent.run(task="What is 1 + 1?")
            await asyncio.sleep(PAUSE_S)
        counting = True
        await agent.run(task="What is 1 + 1?")
        counting = False
    threading.setprofile(None)
    sys.setprofile(None)
    passed = _of_product(called)
    return len(passed), len({path for path, _ in passed})


def _of_product(functions: Iterable[tuple[str, str]]) -> set[tuple[Path, str]]:
    """Return those functions that are our own; libraries are installed below the root, too, and folders reached through links."""
    product = set(filter(_is_product, _files()))
    return {(path, name) for file, name in functions if (path := Path(file).resolve()) in product}


def count_tests() -> int:
    """Return how many test cases there are."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = re.search(r"^(\d+)(?:/\d+)? tests? collected", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout[-2000:]
    return int(found[1])


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _words(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").split())


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
