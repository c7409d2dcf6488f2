"""Which Python a bubblewrap sandbox runs, for root and for others, and that it runs for an ordinary user as it does for root."""

import asyncio
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from autogen_core.code_executor import FunctionWithRequirements

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, Limits, SandboxStartError, SandboxUnavailable
from codeact_sandbox.backends.bubblewrap.interpreter import find_interpreter, host_user
from tests.sandbox.bubblewrapped import SYSTEM_PYTHON, open_folder
from tests.sandbox.sandboxes import out, run

pytestmark = pytest.mark.usefixtures("bubblewrap")

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
LOOK = "import json, sys; print(json.dumps([sys.executable, sys.prefix, sys.base_prefix]))"


@pytest.fixture
def folder() -> Iterator[Path]:
    if not SYSTEM_PYTHON.exists():
        pytest.skip(f"there is no {SYSTEM_PYTHON}")
    with open_folder() as made:
        yield made


def add_package(site: Path, name: str) -> None:
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text("answer = 42\n")


def make_environment(python: Path, place: Path) -> Path:
    """A virtual environment with one package; its folder for packages."""
    subprocess.run([python, "-m", "venv", "--without-pip", place], check=True)
    (site,) = (place / "lib").glob("python*/site-packages")
    add_package(site, "brought_along")
    return site


def real(path: str) -> Path:
    return Path(path).resolve()


def relocated(folder: Path) -> Path:
    """A Python that is not installed in /usr, as pyenv, conda and uv make them: a program with its library beside it."""
    answer = subprocess.run(
        [SYSTEM_PYTHON, "-c", "import sys; print('python%d.%d' % sys.version_info[:2])"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    version = answer.stdout.strip()
    place = folder / "versions" / "3.x.1"
    (place / "bin").mkdir(parents=True)
    (place / "lib").mkdir()
    shutil.copy(SYSTEM_PYTHON.resolve(), place / "bin" / version)
    (place / "bin" / "python3").symlink_to(version)
    (place / "lib" / version).symlink_to(Path("/usr/lib", version))
    return place


class TestPythonOption:
    async def test_a_virtual_environment_brings_its_packages_and_is_read_only(self, folder):
        site = make_environment(SYSTEM_PYTHON, folder / "venv")
        python = folder / "venv" / "bin" / "python"
        async with BubblewrapCommandLineCodeExecutor(python=str(python), preload=["brought_along"]) as executor:
            assert await out(executor, "import brought_along as b; print(b.answer, b.__file__)") == (
                f"42 {site}/brought_along/__init__.py\n"
            )
            assert json.loads(await out(executor, LOOK)) == [str(python), str(folder / "venv"), "/usr"]
            for place in (site, folder / "venv" / "bin", folder):
                assert (await run(executor, f"open('{place}/planted', 'w')")).exit_code == 1
            shown = await out(executor, "which python; ls /tmp", language="sh")
            assert shown.splitlines() == [str(python), *sorted([folder.name, "home"])]
            assert (await run(executor, f"mv {folder} /tmp/away", language="sh")).exit_code != 0

    async def test_python_outside_of_usr_with_links_in_its_path(self, folder):
        place = relocated(folder)
        # As pyenv and uv have them: a version's alias, and a command somewhere else.
        (folder / "versions" / "3.x").symlink_to("3.x.1")
        (folder / "bin").mkdir()
        (folder / "bin" / "py").symlink_to(folder / "versions" / "3.x" / "bin" / "python3")
        (folder / "private.txt").write_text("not for the sandbox")
        asked = folder / "bin" / "py"
        async with BubblewrapCommandLineCodeExecutor(python=str(asked)) as executor:
            executable, prefix, base = json.loads(await out(executor, LOOK))
            assert (executable, real(prefix), real(base)) == (str(asked), place, place)
            assert sorted(
                (await out(executor, f"cd {folder}; find . | grep -v 3.x.1/", language="sh")).split()
            ) == sorted([".", "./bin", "./bin/py", "./versions", "./versions/3.x", "./versions/3.x.1"])
            assert (await run(executor, f"open('{place}/lib/planted', 'w')")).exit_code == 1

    async def test_python_in_a_private_folder_is_refused(self, folder, monkeypatch):
        place = relocated(folder)
        monkeypatch.setenv("HOME", str(place / "home" / "me"))
        with pytest.raises(SandboxUnavailable, match=r"would show .*/home/me too"):
            await BubblewrapCommandLineCodeExecutor(python=str(place / "bin" / "python3")).start()


async def test_missing_packages_of_functions_are_an_error() -> None:
    def using(package: str) -> BubblewrapCommandLineCodeExecutor:
        function = FunctionWithRequirements.from_str(
            "def answer() -> int:\n    return 42\n", python_packages=[package], global_imports=[package]
        )
        return BubblewrapCommandLineCodeExecutor(functions=[function])

    async with using("json") as executor:
        assert await out(executor, "from functions import answer; print(answer())") == "42\n"
    expected = (
        r"the functions failed to load; they need no_such_package: install that for the Python that the sandbox runs, or use "
        r"Docker \(exit code 1\)(?s:.)*No module named 'no_such_package'"
    )
    with pytest.raises(SandboxStartError, match=expected):
        await using("no_such_package").start()


class TestDefaultPython:
    @as_root
    async def test_an_unreachable_python_of_root_is_replaced_by_the_systems_with_a_warning(
        self, folder, monkeypatch, caplog
    ):
        place = relocated(folder)
        python = place / "bin" / "python3"
        monkeypatch.setattr(sys, "executable", str(python))
        assert find_interpreter(None, host_user()).path == python
        folder.chmod(0o700)
        other = place.parent / "copy"
        shutil.copytree(place, other, symlinks=True)
        monkeypatch.setattr(sys, "executable", str(other / "bin" / "python3"))
        caplog.set_level("WARNING", logger="codeact_sandbox")
        async with BubblewrapCommandLineCodeExecutor() as executor:
            assert json.loads(await out(executor, LOOK))[0] == str(SYSTEM_PYTHON)
        assert (
            f"the sandbox runs {SYSTEM_PYTHON}, without the packages of this program's Python ({other}" in caplog.text
        )
        assert "can't run it: Permission denied" in caplog.text
        assert "); to have them, install that Python where every user can read it, or name another one" in caplog.text

    def test_the_running_python_is_used_if_possible(self, monkeypatch):
        for path in (
            SYSTEM_PYTHON,
            Path(__file__).parent / os.path.relpath("/", Path(__file__).parent) / f".{SYSTEM_PYTHON}",
        ):
            monkeypatch.setattr(sys, "executable", str(path))
            found = find_interpreter(None, host_user())
            assert (found.path, found.note) == (SYSTEM_PYTHON.parent.resolve() / SYSTEM_PYTHON.name, "")


def as_other(uid: int, home: Path, work: Callable[[], Any]) -> Any:
    """Do something in a child that has become another user for good."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def become_and_work() -> None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        os.environ.update(HOME=str(home), TMPDIR=str(home))
        import tempfile  # noqa: PLC0415 - it remembers the folder

        tempfile.tempdir = None
        try:
            theirs.send(("ok", work()))
        except BaseException as error:  # noqa: BLE001 - it is raised again where it can be read
            theirs.send(("error", repr(error)))

    child = context.Process(target=become_and_work)
    child.start()
    theirs.close()
    kind, value = ours.recv()
    child.join(10)
    assert child.exitcode == 0
    assert kind == "ok", value
    return value


def use_it() -> dict[str, Any]:
    """What somebody gets from a sandbox."""

    async def use() -> dict[str, Any]:
        options = {"python": str(SYSTEM_PYTHON), "limits": Limits(memory="300m", pids=60)}
        executor = BubblewrapCommandLineCodeExecutor(**options, timeout=10)
        async with executor:
            found = {
                "user": await out(executor, "id -u; grep -h ^Cap /proc/self/status | sort -u -k 2", language="sh"),
                "file": await out(executor, "open('made.txt', 'w').write('made'); print(open('made.txt').read())"),
                "memory": (await run(executor, "x = bytearray(900 << 20)")).exit_code,
                "readable": (await run(executor, "open('/etc/shadow')")).exit_code,
            }
            found["copied"] = (executor.work_dir / "made.txt").read_text()
        return found

    return asyncio.run(use())


@as_root
def test_an_ordinary_user_gets_the_same_as_root(folder):
    os.chown(folder, 23456, 23456)
    mine = use_it()
    theirs = as_other(23456, folder, use_it)
    # Without a control group too much memory is refused by the limit of each process, as an exception.
    assert (mine.pop("memory") != 0, theirs.pop("memory") != 0) == (True, True)
    assert theirs == mine
    assert mine["user"].startswith("65534\n")
    assert mine["copied"] == "made"
