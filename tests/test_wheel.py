"""The built wheel: its content, and that it works outside the checkout."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command, cwd):
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel_installs_one_top_level_name(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"autogen_codeact", "autogen_codeact-0.1.0.dist-info"}


def test_wheel_holds_runner_image_recipe_recordings_page_and_type_markers(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        f"autogen_codeact/{package}/py.typed"
        for package in ("agents", "batch", "cli", "executors", "runs", "teams", "telemetry", "viewer")
    }
    expected |= {
        f"autogen_codeact/{path.relative_to(ROOT)}" for path in (ROOT / "sandbox/codeact_sandbox/runner").rglob("*.py")
    }
    expected |= {f"codeact_sandbox/docker/{path.name}" for path in (ROOT / "docker").iterdir()}
    expected |= {f"autogen_codeact/cli/recordings/{path.name}" for path in (ROOT / "cli/recordings").iterdir()}
    expected |= {f"autogen_codeact/viewer/page/{path.name}" for path in (ROOT / "viewer/page").glob("*.*")}
    assert expected <= names
    assert "codeact_sandbox/docker/__init__.py" not in names
    assert not [name for name in names if "test" in name.lower()]


@pytest.mark.timeout(180)
def test_installed_wheel_runs_the_demo_outside_the_checkout(wheel, tmp_path, docker_engine):
    home = tmp_path / "clean"
    venv.create(home)
    python = home / "bin" / "python"
    # With the pip of the tests: a pip of its own takes seconds to install.
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps"]
    run(*pip, wheel, cwd=tmp_path)
    # Dependencies come from the environment of the tests (there is no network here). A folder named in a .pth file is searched,
    # but its own .pth files are not read, so the checkout's editable install is out of reach.
    site = next((home / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = run(python, "-c", "import autogen_codeact.cli as cli; print(cli.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(home)
    work = tmp_path / "elsewhere"
    work.mkdir()
    shown = run(home / "bin" / "codeact", "demo", cwd=work)
    assert "recorded" in shown
    plots = [path for path in work.rglob("*") if path.suffix in {".png", ".svg"}]
    assert plots
    assert all(path.stat().st_size > 1000 for path in plots)


def test_nothing_of_the_checkout_shadows_a_dependency():
    assert not (ROOT / "docker" / "__init__.py").exists()
    code = "import docker, autogen_codeact.executors as ours; print(docker.APIClient.__module__, ours.Limits.__name__)"
    shown = run(sys.executable, "-c", code, cwd=ROOT)
    assert shown == "docker.api.client Limits\n"
