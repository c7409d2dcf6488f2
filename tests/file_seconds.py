"""How long each file of tests takes, which decides their order in `make test`: a long file that begins last is waited for."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

STORED = Path(__file__).with_suffix(".json")
ROOT = Path(__file__).parents[1]
LOOKS_FOR_PROCESSES = {"abuse", "executors", "sandbox"}
"""Folders whose tests look for processes that are left behind."""
SHORTEST_S = 2
"""Files that take less are not stored."""
TEST_S = 0.2
"""What a test of a file that is not stored is taken to last, in seconds."""
OTHERS = Path(__file__).parent / "frameworks"
"""Tests that run in environments of their own."""


def put_long_files_first(items: list[pytest.Item]) -> None:
    """Order whole files by their length, so that no worker has a long one left when the others are done.

    Those that look for processes come before all others, which could leave some behind in the same worker.
    """
    known: dict[str, float] = json.loads(STORED.read_text())
    tests = Counter(item.path for item in items)
    seconds = {path: known.get(_name(path), number * TEST_S) for path, number in tests.items()}
    items.sort(key=lambda item: (not _looks_for_processes(item.path), -seconds[item.path], item.path))


def share_compilation(config: pytest.Config) -> None:
    """Have each worker import the files in an order that begins elsewhere, if all tests are collected.

    In a fresh clone each file has to be compiled. So each worker compiles a part of them, and finds the others compiled.
    """
    if config.args_source != pytest.Config.ArgsSource.TESTPATHS:
        return
    worker, workers = config.workerinput["workerid"], config.workerinput["workercount"]  # type: ignore[attr-defined]
    found = Path(__file__).parent.rglob("test_*.py")
    files = sorted(
        str(path) for path in found if OTHERS not in path.parents
    )  # which `collect_ignore` does not leave out here
    first = len(files) * int(worker.removeprefix("gw")) // workers % len(files)
    config.args[:] = files[first:] + files[:first]


def _looks_for_processes(path: Path) -> bool:
    return not LOOKS_FOR_PROCESSES.isdisjoint(path.parts)


class Recorder:
    """Stores how long the files take; `--store-seconds` uses it. Files that were not run keep what is stored."""

    def __init__(self) -> None:
        self._seconds = Counter[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the set-up, the test and the clean-up."""
        self._seconds[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        known = json.loads(STORED.read_text()) | {name: round(took) for name, took in self._seconds.items()}
        kept = {name: took for name, took in known.items() if took >= SHORTEST_S and (ROOT / name).exists()}
        STORED.write_text(json.dumps(dict(sorted(kept.items())), indent=0) + "\n")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
