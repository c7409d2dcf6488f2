"""With `allow_pip`, pip installs packages into a sandbox without network."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from autogen_codeact.executors import ExecutionResult
from autogen_codeact.executors.executor import SandboxCodeExecutor
from tests.abuse.subject import Kind
from tests.sandbox.contract.conftest import EACH_ONCE, backend
from tests.sandbox.sandboxes import out, run, short_result

pytestmark = [pytest.mark.asyncio(loop_scope="module"), EACH_ONCE]


__all__ = ["backend"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(backend: Kind, configured: pytest.MonkeyPatch) -> AsyncIterator[SandboxCodeExecutor]:
    """One with `allow_pip`."""
    async with backend.make(allow_pip=True, timeout=120) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(backend: Kind, executor: SandboxCodeExecutor) -> ExecutionResult:
    """The result of a block that has installed packages."""
    if backend.session:
        assert (await run(executor, "mark = 1\nimport tinywheel")).exit_code == 1
    return await run(executor, "pip install 'otherwheel<2' TinyWheel", "sh")


async def test_pip_installs_a_package_and_what_it_needs(backend, executor, installed):
    shown = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", installed.output).splitlines()
    assert "Looking in indexes: http://ADDRESS/simple/" in shown
    assert (installed.exit_code, installed.notes, installed.connections) == (0, (), ())
    assert re.fullmatch("Successfully installed (TinyWheel-1.0 otherwheel-1.0|otherwheel-1.0 tinywheel-1.0)", shown[-1])
    assert await out(executor, "import otherwheel, tinywheel\ntinywheel.main()") == "hello\n"
    assert await out(executor, "tiny && python3 -c 'import tinywheel; tinywheel.main()'", "sh") == "hello\nhello\n"
    if backend.session:
        assert await out(executor, "mark") == "1\n"


@pytest.mark.usefixtures("installed")
async def test_packages_survive_a_timeout(executor: SandboxCodeExecutor) -> None:
    executor.sandbox.timeout = 0.5
    assert (await run(executor, "while True: pass")).outcome == "timeout"
    executor.sandbox.timeout = 120
    assert await out(executor, "import tinywheel\ntinywheel.main()") == "hello\n"


@pytest.mark.usefixtures("installed")
async def test_a_python_block_can_be_a_pip_command(backend: Kind, executor: SandboxCodeExecutor) -> None:
    command = "%pip install -q --upgrade otherwheel" if backend.session else "!pip install -q --upgrade otherwheel"
    assert (await run(executor, command)).exit_code == 0
    assert await out(executor, "python3 -c 'import otherwheel; print(otherwheel.value)'", "sh") == "2\n"


async def test_nothing_else_can_be_reached(backend: Kind, executor: SandboxCodeExecutor) -> None:
    code = """
    import os, urllib.request
    print({name for name in os.environ if "proxy" in name.lower()})
    index = os.environ["PIP_INDEX_URL"]
    for url in ("http://example.com/", "http://127.0.0.1/"):
        request = urllib.request.Request(url)
        request.set_proxy(index.split("/")[2], "http")
        try:
            print(urllib.request.urlopen(request).read())
        except OSError as error:
            print(error)
    """
    refused = (
        "HTTP Error 403: {0} is not in allow_domains; to allow it, the user of this sandbox adds '{0}' to allow_domains"
    )
    result = await run(executor, code)
    assert short_result(result) == (
        "ok", 0, "set()\n" + "".join(refused.format(f"{host}:80") + "\n" for host in ("example.com", "127.0.0.1"))
    )  # fmt: skip


WAYS = (
    "!pip install -q tinywheel",
    "%pip install -q tinywheel",
    "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', '-q', 'tinywheel'], check=True)",
    "try:\n    import tinywheel\nexcept ImportError:\n    !pip install -q tinywheel",
)


@pytest.mark.usefixtures("configured")
async def test_one_block_installs_a_package_and_imports_it(backend):
    for way in WAYS[::2] if backend.session else WAYS[1::2]:
        # The first package of a sandbox: nothing is installed before.
        async with backend.make(allow_pip=True, timeout=120) as executor:
            result = await run(executor, f"{way}\nimport otherwheel, tinywheel\ntinywheel.main()")
            assert short_result(result) == ("ok", 0, "hello\n"), (way, result)
            later = await run(executor, "import tinywheel")
            assert later.outcome == "ok", way


async def test_without_the_option_pip_says_so_at_once(backend: Kind) -> None:
    shown = ("allow_pip=True", "--allow-pip", "--package", "code has to use what is installed")
    async with backend.make() as executor:
        subprocess = (
            "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', '-q', 'tinywheel'])"
        )
        ways = [(subprocess, "python"), ("pip install -q tinywheel", "sh")]
        if backend.session:
            ways += [("!pip install tinywheel", "python"), ("%pip install tinywheel", "python")]
        for code, language in ways:
            result = await run(executor, code, language)
            line = next((line for line in result.output.splitlines()[:2] if "allow_pip" in line), "")
            assert all(word in line for word in shown), (code, result.output)
            assert not any(word in result.output for word in ("Retrying", "seems invalid"))
        assert "attempt" not in await out(executor, "pip list", "sh")
