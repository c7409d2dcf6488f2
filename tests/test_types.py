"""Type checkers accept the programs of users and report mistakes; the written types of options are those of the models."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel

from autogen_codeact.executors import arguments
from autogen_codeact.executors.bubblewrap import BubblewrapArguments
from autogen_codeact.executors.docker import DockerArguments
from codeact_sandbox import BubblewrapOptions, DockerOptions, Limits
from codeact_sandbox.types import option_types
from codeact_sandbox.types.options import SandboxOptions
from tests.test_docs import programs

pytestmark = pytest.mark.more

ROOT = Path(__file__).parents[1]
MISUSES = "misuses.py"
LIMITS, POSITIONAL = list(Limits.model_fields), ("image", "container_name")


@pytest.fixture(scope="module")
def python(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment in which the wheels are installed."""
    home = tmp_path_factory.mktemp("types") / "installed"
    venv.create(home)
    site = next((home / "lib").glob("python*/site-packages"))
    for wheel in wheels:
        zipfile.ZipFile(wheel).extractall(site)
    # The dependencies; of that folder's own .pth files none is read, so the checkout is out of reach.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "python"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all programs that users are shown, and one with mistakes."""
    folder = tmp_path_factory.mktemp("programs")
    for sample in (ROOT / "samples").glob("*.py"):
        (folder / sample.name).write_text(sample.read_text())
    for program in programs():
        page, number, code = program.values
        (folder / f"{page.removesuffix('.md').replace('-', '_')}_{number}.py").write_text(code)
    (folder / MISUSES).write_text((ROOT / "tests" / "typing" / MISUSES).read_text())
    return folder


def run(command: list[Any], folder: Path) -> str:
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 1, done.stdout + done.stderr  # of the mistakes
    return done.stdout


def check(found: list[tuple[str, int, str]]) -> None:
    """Check what was reported: file, line and message of each."""
    assert [each for each in found if each[0] != MISUSES] == []
    lines = (ROOT / "tests" / "typing" / MISUSES).read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, start=1) if line.endswith("  # wrong")}
    reported = {line for _, line, _ in found}
    assert [lines[number - 1] for number in sorted(wrong - reported)] == []
    assert [each for each in found if each[1] not in wrong] == []


@pytest.mark.timeout(300)
def test_pyright_accepts_what_users_are_shown_and_reports_mistakes(python: Path, project: Path) -> None:
    # basedpyright is pyright's engine with its node in wheels; pyright's own package downloads them when it is first used.
    (project / "pyrightconfig.json").write_text(
        json.dumps({"typeCheckingMode": "standard", "pythonVersion": "3.11", "failOnWarnings": False})
    )
    command = [Path(sys.executable).with_name("basedpyright"), "--pythonpath", python, "--outputjson"]
    report = json.loads(run(command, project))
    assert report["summary"]["filesAnalyzed"] > 40
    check(
        [
            (Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["message"])
            for each in report["generalDiagnostics"]
            if each["severity"] == "error"
        ]
    )


@pytest.mark.timeout(300)
def test_mypy_accepts_what_users_are_shown_and_reports_mistakes(python: Path, project: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "--output", "json"]
    cache = ROOT / ".mypy_cache" / "users"
    shown = run([*command, "--cache-dir", cache, "--config-file", "", *sorted(project.glob("*.py"))], project)
    reports = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    check([(Path(each["file"]).name, each["line"], each["message"]) for each in reports if each["severity"] == "error"])


WRITTEN: list[tuple[Any, type[BaseModel], list[str], tuple[str, ...]]] = [
    (option_types.LimitKeywords, Limits, [], ()),
    (option_types.CommonKeywords, SandboxOptions, LIMITS, ()),
    (option_types.DockerKeywords, DockerOptions, LIMITS, POSITIONAL),
    (option_types.ContainerKeywords, DockerOptions, LIMITS, ()),
    (option_types.BubblewrapKeywords, BubblewrapOptions, LIMITS, ()),
    (arguments.DockerExecutorKeywords, DockerArguments, LIMITS, POSITIONAL),
    (arguments.BubblewrapExecutorKeywords, BubblewrapArguments, LIMITS, ()),
]


@pytest.mark.parametrize("written", WRITTEN)
def test_written_types_are_those_of_the_models(written: Any) -> None:
    keywords, model, more, without = written
    fields = {name: field.annotation for name, field in model.model_fields.items() if name not in without}
    fields |= {name: Limits.model_fields[name].annotation for name in more}
    assert get_type_hints(keywords) == fields
    assert keywords.__required_keys__ == frozenset()


def test_types_of_any_sandbox_are_those_of_all() -> None:
    both = get_type_hints(option_types.ContainerKeywords) | get_type_hints(option_types.BubblewrapKeywords)
    assert get_type_hints(option_types.SandboxKeywords) == both
    tools = get_type_hints(arguments.ToolKeywords)
    ends = get_type_hints(arguments.ContainerEndKeywords)
    assert get_type_hints(arguments.PoolKeywords) == both | tools | ends
    executors = get_type_hints(arguments.DockerExecutorKeywords) | get_type_hints(arguments.BubblewrapExecutorKeywords)
    assert get_type_hints(arguments.ExecutorKeywords) == executors | both
