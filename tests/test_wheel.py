"""The built wheels: their content, and that they work outside the checkout."""

import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import autogen_codeact
from codeact_sandbox.types.version import __version__

pytestmark = pytest.mark.more

ROOT = Path(__file__).parents[1]


def run(*command, cwd):
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def names_in(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert len(names) == len(set(names))
    return set(names)


def tracked(folder, ending=".py"):
    names = run("git", "ls-files", "--cached", "--others", "--exclude-standard", folder, cwd=ROOT).splitlines()
    return {name for name in names if name.endswith(ending) and (ROOT / name).is_file()}


def test_each_wheel_installs_one_package_with_all_its_modules(wheels):
    sandbox, agents = map(names_in, wheels)
    assert {name.split("/")[0] for name in sandbox} == {"codeact_sandbox", "codeact_sandbox-0.2.0.dist-info"}
    assert {name.split("/")[0] for name in agents} == {"autogen_codeact", "autogen_codeact-0.2.0.dist-info"}
    modules = {name for name in sandbox if name.endswith(".py")}
    assert modules == {name.removeprefix("sandbox/") for name in tracked("sandbox")}
    linked = {f"autogen_codeact/{name}" for folder in ("agents", "executors", "teams") for name in tracked(folder)}
    expected = linked | tracked("autogen_codeact")
    assert {name for name in agents if name.endswith(".py")} == expected


def test_both_distributions_have_one_version(wheels):
    assert autogen_codeact.__version__ == __version__
    assert {wheel.name.split("-")[1] for wheel in wheels} == {__version__}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"codeact-sandbox=={__version__}" in project["dependencies"]
    assert f"\n## {__version__}\n" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_wheels_hold_image_recipe_recordings_page_and_type_markers(wheels):
    sandbox, agents = map(names_in, wheels)
    assert {f"codeact_sandbox/docker/{path.name}" for path in (ROOT / "docker").iterdir()} <= sandbox
    assert "codeact_sandbox/docker/__init__.py" not in sandbox
    assert "codeact_sandbox/py.typed" in sandbox
    expected = {"autogen_codeact/py.typed"}
    expected |= {
        f"autogen_codeact/cli/recordings/{path.name}" for path in (ROOT / "autogen_codeact/cli/recordings").iterdir()
    }
    expected |= {
        f"autogen_codeact/viewer/page/{path.name}" for path in (ROOT / "autogen_codeact/viewer/page").glob("*.*")
    }
    assert expected <= agents
    assert not [name for name in sandbox | agents if "test" in name.lower()]


def install(home, *wheels):
    """Make an environment with these wheels alone; dependencies come from the environment of the tests (there is no network)."""
    venv.create(home)
    python = home / "bin" / "python"
    # With the pip of the tests: a pip of its own takes seconds to install.
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps"]
    run(*pip, *wheels, cwd=home)
    # A folder named in a .pth file is searched, but its own .pth files are not read, so the checkout's editable installs are out
    # of reach.
    site = next((home / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.mark.timeout(180)
def test_installed_wheels_run_the_demo_outside_the_checkout(wheels, tmp_path, docker_engine):
    home = tmp_path / "clean"
    python = install(home, *wheels)
    where = run(python, "-c", "import autogen_codeact.cli as cli; print(cli.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(home)
    work = tmp_path / "elsewhere"
    work.mkdir()
    shown = run(home / "bin" / "codeact", "demo", cwd=work)
    assert "recorded" in shown
    plot = (work / "codeact-demo" / "revenue.svg").read_text()
    assert re.findall("<svg |cake|coffee|tea|</svg>", plot) == ["<svg ", "cake", "coffee", "tea", "</svg>"]


@pytest.mark.timeout(180)
def test_the_sandbox_alone_works_without_autogen_typer_rich_and_pillow(wheels, tmp_path, bubblewrap):
    home = tmp_path / "clean"
    python = install(home, wheels[0])
    program = """
import sys
GONE = ("autogen_core", "autogen_ext", "autogen_agentchat", "autogen_codeact", "typer", "rich", "PIL")
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in GONE:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
from codeact_sandbox import Sandbox
def double(number: int) -> int:
    return 2 * number
with Sandbox("bubblewrap", tools=[double]) as box:
    print(box.run("double(21)").value)
"""
    assert run(python, "-c", program, cwd=tmp_path) == "42\n"
    shown = run(
        home / "bin" / "codeact-sandbox", "exec", "--backend", "bubblewrap", "--code", "print(6 * 7)", cwd=tmp_path
    )
    assert shown == "42\n"


def test_nothing_of_the_checkout_shadows_a_dependency():
    assert not (ROOT / "docker" / "__init__.py").exists()
    code = "import docker, autogen_codeact.executors as ours; print(docker.APIClient.__module__, ours.Limits.__name__)"
    shown = run(sys.executable, "-c", code, cwd=ROOT)
    assert shown == "docker.api.client Limits\n"
