"""Print how large the product is: statements by folder, files, long lines, lines of tests and benchmarks, words.

python benchmarks/size.py            # fails above a budget
python benchmarks/size.py --report   # prints only
"""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_PRODUCT = ("tests/", "benchmarks/", "samples/", "docs/", ".ci/", ".github/", "sandbox/tests/")
WIDE = 100
BUDGETS = {
    "statements": 36_500,
    "lines of tests": 52_000,
    "words of docs": 25_000,
    "words of README": 800,
    "lines of benchmarks": 3_500,
}


def files(*patterns: str) -> list[str]:
    """Return the names of the repository's files that match, also of links."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def text(name: str) -> str:
    """Return a file's content."""
    return (ROOT / name).read_text(encoding="utf-8")


def lines(*patterns: str) -> int:
    """Return how many lines the files that match have."""
    return sum(text(name).count("\n") for name in files(*patterns))


def words(*patterns: str) -> int:
    """Return how many words the files that match have."""
    return sum(len(text(name).split()) for name in files(*patterns))


def statements(name: str) -> int:
    """Return how many statements a file has; a docstring is one, too."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(text(name))))


def folder_of(name: str) -> str:
    """Return the folder that a file counts for: the one at the top, or the one in a package."""
    depth = {"sandbox": 3, "autogen_codeact": 2}.get(name.partition("/")[0], 1)
    return "/".join(Path(name).parent.parts[:depth])


def main(arguments: list[str]) -> int:
    """Print all figures, and return 1 if one is above its budget."""
    product = [name for name in files("*.py") if not name.startswith(NOT_PRODUCT)]
    by_folder: Counter[str] = Counter()
    for name in product:
        by_folder[folder_of(name)] += statements(name)
    for folder, count in sorted(by_folder.items()):
        print(f"{count:7,} statements in {folder}")
    print(
        f"{sum(len(line) > WIDE for name in product for line in text(name).splitlines()):7,} lines over {WIDE} columns"
    )
    found = {
        "statements": by_folder.total(),
        "lines of tests": lines("tests/*.py"),
        "words of docs": words("docs/*.md"),
        "words of README": words("README.md"),
        "lines of benchmarks": lines("benchmarks/*.py"),
    }
    print(f"{len(product):7,} files of the product")
    for what, count in found.items():
        print(f"{count:7,} {what} (at most {BUDGETS[what]:,}){' TOO MANY' if count > BUDGETS[what] else ''}")
    return int("--report" not in arguments and any(count > BUDGETS[what] for what, count in found.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
