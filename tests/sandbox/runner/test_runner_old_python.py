"""The runner on every supported Python; without a container, so that each only needs to be installed."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codeact_sandbox.host import protocol, runner_modules
from tests.cases import case
from tests.sandbox.runner.local_runner import LocalRunner, find_python

pytestmark = pytest.mark.more

RUNNER = Path(__file__).parents[3] / "sandbox/codeact_sandbox/runner"
VERSIONS = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]
SHELL = ["sh", "{file}"]


def namespaces_work() -> bool:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return bool(shutil.which("unshare")) and subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(not namespaces_work(), reason="no right to make a PID namespace (root has it)")


@pytest.fixture(scope="module", params=VERSIONS)
def python(request: pytest.FixtureRequest) -> str:
    found = find_python(request.param)
    if found is None:
        pytest.skip(f"no Python {request.param} on this machine")
    return found


@pytest.fixture(scope="module")
def process(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRunner]:
    """One for all tests of a version, which has to compile all modules first."""
    with LocalRunner(python, tmp_path_factory.mktemp("process")) as runner:
        runner.greet()
        yield runner


@pytest.fixture(scope="module")
def session(python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRunner]:
    """One for all tests of a version."""
    with LocalRunner(python, tmp_path_factory.mktemp("session"), mode="session") as runner:
        runner.greet()
        yield runner


class TestSource:
    def test_source_imports_the_standard_library_and_itself(self) -> None:
        for path in sorted(RUNNER.rglob("*.py")):
            with case(path):
                for node in ast.walk(ast.parse(path.read_text())):
                    if isinstance(node, ast.Import):
                        assert {alias.name.partition(".")[0] for alias in node.names} <= sys.stdlib_module_names
                    elif isinstance(node, ast.ImportFrom) and node.level == 0:
                        assert (node.module or "").partition(".")[0] in sys.stdlib_module_names

    def test_all_modules_are_sent_in_import_order(self):
        # These go into the module of the host tools.
        apart = {"worker.tool_values", "worker.value_codec"}
        assert (
            set(runner_modules.MODULES)
            == {f"{path.parent.name}.{path.stem}" for path in RUNNER.glob("*/[a-z]*.py")} - apart
        )
        seen: set[str] = set()
        for name in runner_modules.MODULES:
            folder, _, module = name.partition(".")
            for node in ast.parse((RUNNER / folder / f"{module}.py").read_text()).body:
                if isinstance(node, ast.ImportFrom) and node.level:
                    of = node.module if node.level == 2 else folder
                    assert {f"{of}.{alias.name}" for alias in node.names} <= seen, name
            seen.add(name)

    def test_folders_import_in_one_direction(self) -> None:
        order = ["shared", "worker", "zygote", "supervisor"]
        for path in RUNNER.glob("*/*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.level == 2:
                    assert order.index(node.module or "") < order.index(path.parent.name), (path.name, node.module)


@needs_namespaces
class TestProcessMode:
    def test_runner_sends_hello(self, python: str, tmp_path: Path) -> None:
        with LocalRunner(python, tmp_path, preload=["decimal", "no_such_module"]) as runner:
            hello = runner.greet()
        assert hello["protocol"] == protocol.VERSION
        assert python.endswith(".".join(hello["python"].split(".")[:2]))
        assert hello["workspace_writable"]
        assert list(hello["preload"]) == ["no_such_module"]

    def test_runner_runs_blocks(self, process: LocalRunner) -> None:
        result, output = process.run("import sys; print(__name__, sys.argv[0].endswith('block.py')); sys.exit(3)")
        assert (result["outcome"], result["exit_code"], output) == ("error", 3, "__main__ True\n")
        result, output = process.run("print('a')\n1 / 0")
        assert (result["outcome"], result["error"]["type"], result["error"]["line"]) == (
            "error",
            "ZeroDivisionError",
            2,
        )
        assert output.startswith("a\nTraceback (most recent call last):\n  File ")
        assert "codeact" not in output
        result, output = process.run("import threading; threading.Thread(target=print, args=('thread',)).start()")
        assert (result["outcome"], output) == ("ok", "thread\n")
        result, _ = process.run("import os; os.abort()")
        assert (result["outcome"], result["error"]["type"]) == ("crashed", "SIGABRT")

    def test_runner_enforces_the_deadline_and_kills_leftovers(self, process: LocalRunner) -> None:
        begin = "import subprocess, time\nsubprocess.Popen(['sleep', '300'], start_new_session=True)\nprint('begun')\n"
        result, output = process.run(begin + "time.sleep(60)", timeout=1.5)
        assert (result["outcome"], output) == ("timeout", "begun\n")
        code = """import os
for pid in os.listdir("/proc"):
    if pid.isdigit(): print(open("/proc/" + pid + "/comm").read(), end="")
"""
        assert "sleep" not in process.run(code)[1]

    def test_runner_transfers_files(self, process: LocalRunner) -> None:
        process.request(b"F", {"op": "write", "name": "in.txt", "mode": 0o644, "final": True}, b"in")
        result, _ = process.run("open('out.txt', 'w').write(open('in.txt').read() + ' out')")
        assert ("out.txt", 6) in [(entry["name"], entry["size"]) for entry in result["files"]]
        message, data, _ = process.request(b"F", {"op": "read", "name": "out.txt", "offset": 0, "size": 100})
        assert (message["size"], data) == (6, b"in out")
        message, _, _ = process.request(b"F", {"op": "read", "name": "none", "offset": 0, "size": 100})
        assert message["errno"] == 2


@needs_namespaces
class TestSessionMode:
    def test_session_keeps_variables(self, session: LocalRunner) -> None:
        session.run("import math; x = [1]\ndef f(): return math.floor(2.5)")
        result, output = session.run("x.append(f()); x")
        assert (result["value"], output) == ("[1, 2]", "[1, 2]\n")
        result, output = session.run("1 / 0")
        assert (result["outcome"], result["state"]) == ("error", "kept")

    def test_session_is_restored_after_a_crash(self, session: LocalRunner) -> None:
        session.run("x = 1")
        for code, outcome in (
            ("x = 2\nimport time; time.sleep(60)", "timeout"),
            ("x = 2; import os; os._exit(1)", "crashed"),
        ):
            result, _ = session.run(code, timeout=1)
            assert (result["outcome"], result["state"]) == (outcome, "restored")
            assert session.run("x")[0]["value"] == "1"

    def test_session_rolls_back(self, session: LocalRunner) -> None:
        session.run("x = 1")
        for _ in range(2):
            assert session.request(b"P", {})[0] == {}
            session.run("x += 1")
            assert session.request(b"R", {})[0] == {"not_taken": None}  # it is taken again at once
            assert session.run("x")[0]["value"] == "1"

    def test_session_shares_directory_and_environment_with_shells(self, session: LocalRunner) -> None:
        session.run("cd /tmp; export SHARED=1", command=SHELL, keep_state=True)
        assert session.run("import os; os.getcwd(), os.environ['SHARED']")[0]["value"] == "('/tmp', '1')"
        session.run("os.chdir('/'); os.environ['SHARED'] = '2'")
        assert session.run("pwd; echo $SHARED", command=SHELL, keep_state=True)[1] == "/\n2\n"

    def test_session_separates_late_output_also_of_thread_pools(self, session: LocalRunner) -> None:
        session.run(
            "import threading, time\nfrom concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)"
        )
        session.run(
            "go = threading.Event(); t = threading.Thread(target=lambda: (go.wait(5), print('late'))); t.start()"
        )
        result, output = session.run("go.set(); t.join(); list(pool.map(abs, [-1]))")
        assert output == "[1]\n"
        assert result["notes"] == ["Written meanwhile by threads of earlier blocks: late\n"]


def boot(python: str, sent: bytes = b"", code: str = runner_modules.BOOT, **options: Any) -> tuple[int, str, str]:
    """Run the boot code and hang up; gives the exit code and both streams."""
    command = [python, "-I", "-S", "-c", code]
    done = subprocess.run(command, input=sent, capture_output=True, check=False, **options)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class TestBootCode:
    @pytest.mark.parametrize("version", ["3.6", "3.7"])
    def test_boot_code_refuses_an_older_python_with_a_message(self, version: str) -> None:
        python = find_python(version)
        if python is None:
            pytest.skip(f"no Python {version} on this machine")
        code, _, errors = boot(python)
        assert (code, f"needs Python 3.8 or later, this image has {version}." in errors) == (1, True)

    def test_boot_code_ends_quietly_when_the_host_is_gone(self, python: str) -> None:
        for sent in (b"", b"B\0", runner_modules.compiled_frame()[:1000], runner_modules.compiled_frame()):
            assert boot(python, sent) == (0, "", "")

    def test_boot_code_refuses_a_frame_that_is_too_large(self, python: str) -> None:
        sent = b"B" + (0).to_bytes(4, "big") + (2**32 - 1).to_bytes(4, "big")
        assert boot(python, sent) == (1, "", "a frame is too large\n")

    @pytest.mark.parametrize(
        "code",
        [runner_modules.BOOT, runner_modules.boot({"PYTHONHASHSEED": "0"})],
        ids=["isolated", "seeded"],
    )
    def test_boot_code_imports_no_module_from_the_workspace(self, python, tmp_path, code):
        for name in ("json", "struct", "types", "os", "builtins", "encodings", "codecs", "site"):
            (tmp_path / f"{name}.py").write_text("print('taken')")
        env = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONPYCACHEPREFIX": str(tmp_path)}
        assert boot(python, code=code, cwd=tmp_path, env=env) == (0, "", "")

    def test_interpreter_with_a_hash_seed_has_the_variables_of_the_code(self, python: str, tmp_path: Path) -> None:
        given = {"PYTHONHASHSEED": "7", "PYTHONOPTIMIZE": "2", "PYTHONPATH": "/given", "KEY": "k"}
        look = "import os, sys; print(hash('a'), sys.flags.optimize, '/given' in sys.path, os.environ['KEY'])"
        with LocalRunner(python, tmp_path, environment=given) as runner:
            runner.greet()
            _, output = runner.run(look)
        alone = subprocess.run(
            [python, "-c", "print(hash('a'))"], env=given, capture_output=True, text=True, check=True
        )
        assert output == f"{alone.stdout.strip()} 2 True k\n"
