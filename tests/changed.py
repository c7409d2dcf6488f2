"""Which tests `make test-fast` runs: `python tests/changed.py PATH…` prints those of the paths that a change is about.

A changed file of tests is run. For a changed module, those that are named like it or import it are; if there is none, those that
name a class or function of it. If nothing differs from the branch main, or a conftest.py or the like does, all are.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main(paths: list[str]) -> int:
    """Print the files to run, on one line."""
    changed = [path for path in changed_files() if path.suffix in (".py", ".toml")]
    tests = [
        file
        for path in paths
        for file in ([ROOT / path] if path.endswith(".py") else sorted((ROOT / path).glob("test_*.py")))
    ]
    chosen = tests if not changed else choose(changed, tests)
    print(*(file.relative_to(ROOT) for file in chosen or tests[:1]))
    return 0


def changed_files() -> list[Path]:
    """Return what differs from main and still exists, also what is not committed yet."""
    base = _git("merge-base", "HEAD", "main").strip() or "HEAD"
    names = _git("diff", "--name-only", base) + _git("ls-files", "--others", "--exclude-standard")
    return [ROOT / name for name in names.splitlines() if (ROOT / name).is_file()]


def choose(changed: list[Path], tests: list[Path]) -> list[Path]:
    """Return the files of tests that changed, or that name a changed module or what it defines."""
    chosen = {file for file in tests if file in changed}
    texts = {file: file.read_text(encoding="utf-8") for file in tests}
    for path in changed:
        if path.name in ("conftest.py", "pyproject.toml", "__init__.py"):
            return tests
        if ROOT / "tests" in path.parents:
            continue
        body = ast.parse(path.read_text(encoding="utf-8")).body
        names = [node.name for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
        about = re.compile(rf"\b{path.parent.name}(?:\.| import ){path.stem}\b")
        named = re.compile(rf"\b(?:{'|'.join(names)})\b") if names else about
        near = {file for file, text in texts.items() if path.stem in file.stem or about.search(text)}
        chosen |= near or {file for file, text in texts.items() if named.search(text)}
    return [file for file in tests if file in chosen]


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
