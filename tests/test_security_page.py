"""The table of docs/security.md names every case, and nothing that does not exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## What is promised")[2].partition("\n## ")[0]
NAMED = {
    case
    for row in TABLE.splitlines()
    if row.startswith("| ")
    for case in re.findall(r"(?<![\w`])[A-Z]?\d+(?![\w`])", re.sub(r"`[^`]*`", "", row.rstrip(" |").rpartition("|")[2]))
}
COMMENT = r"^ *# Cases? ([A-Z\d, ]+)\.\n *(?:@|class Test|(?:async )?def test_)"
"""The comment above a test."""
CASES = {
    case
    for path in (ROOT / "tests").rglob("test_*.py")
    for cases in re.findall(COMMENT, path.read_text(encoding="utf-8"), re.MULTILINE)
    for case in cases.split(", ")
}


def test_the_page_names_every_case_and_no_other() -> None:
    assert sorted(NAMED) == sorted(CASES)


def test_every_numbered_promise_has_a_case() -> None:
    # 46 was about a tool that is no longer there.
    assert {str(number) for number in range(1, 84) if number != 46} - CASES == set()
    assert {f"H{number}" for number in range(1, 21) if number != 7} - CASES == set()


def test_every_test_and_file_that_the_page_names_exists() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert [name for name in sorted(named) if f"def {name}(" not in tests] == []
    files = set(re.findall(r"`((?:tests|teams|docker)/[\w/*.]+)`", PAGE))
    assert len(files) > 5
    assert [path for path in sorted(files) if not list(ROOT.glob(path))] == []
