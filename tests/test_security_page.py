"""Every test that docs/security.md names exists, and the page names every case of the abuse suite."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
CASES = {
    name: path.name
    for path in sorted((ROOT / "tests" / "abuse").glob("test_*.py"))
    for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
}
STARTS = set(re.findall(r"`(test_[hijklm]?\d+_\w*)…`", PAGE))
LETTERS = {"a": (1, 22), "b": (23, 38), "c": (39, 46), "d": (47, 64), "e": (65, 76), "f": (77, 83), "g": (84, 999)}


def test_every_file_that_the_page_names_exists():
    named = set(re.findall(r"`(tests/[\w/*.]+)`", PAGE))
    assert len(named) > 20
    assert [path for path in sorted(named) if not list(ROOT.glob(path))] == []


def test_every_test_that_the_page_names_exists():
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert [start for start in sorted(STARTS) if not any(name.startswith(start) for name in CASES)] == []
    whole = set(re.findall(r"`(test_\w+)`", PAGE))
    assert [name for name in sorted(whole) if f"def {name}(" not in tests] == []
    # Each test must be named in the form that the two patterns above find.
    assert len(re.findall(r"test_[hijklm]?\d+", PAGE)) == len(re.findall(r"`test_[hijklm]?\d+_\w*…`", PAGE))


def test_the_page_names_every_case_and_file_of_the_abuse_suite():
    assert [file for file in sorted(set(CASES.values())) if f"`tests/abuse/{file}`" not in PAGE] == []
    # Tests without a number check the oracles, or an engine that gives wrong answers.
    numbered = {name: match[1].lstrip("0") for name in CASES if (match := re.match(r"test_([hijklm]?\d+)_", name))}
    assert [name for name in sorted(numbered) if not name.startswith(tuple(STARTS))] == []


def test_each_case_is_in_the_file_of_its_section():
    for name, file in CASES.items():
        match = re.match(r"test_([hijklm]?)(\d+)_", name)
        if match is not None and match[1]:
            assert file.startswith(f"test_{match[1]}_"), (name, file)
        elif match is not None:
            first, last = LETTERS[file.split("_")[1]]
            assert first <= int(match[2]) <= last, (name, file)
