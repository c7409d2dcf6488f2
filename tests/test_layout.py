"""The layout of the repository: one import path for each module."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["agents", "executors", "teams"])
def test_short_name_is_refused(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=50
    )
    assert done.stderr.splitlines()[-1] == f"ImportError: import autogen_codeact.{name}"


def test_three_folders_are_links_of_the_package() -> None:
    links = sorted(path.name for path in (ROOT / "autogen_codeact").rglob("*") if path.is_symlink())
    assert links == ["agents", "executors", "teams"]
