"""Shell blocks of a session share their directory and exported variables with later blocks."""

import pytest
import pytest_asyncio

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from tests.cases import case
from tests.sandbox.sandboxes import out, run

pytestmark = pytest.mark.asyncio(loop_scope="module")


class TestShells:
    @pytest_asyncio.fixture(loop_scope="module")
    async def home(self, session: DockerCommandLineCodeExecutor) -> DockerCommandLineCodeExecutor:
        await out(session, "mkdir -p /workspace/a/b && cd /workspace", "sh")
        return session

    @pytest.mark.parametrize("language", ["sh", "bash"])
    async def test_shells_share_directory_and_exports_with_python_both_ways(self, home, language):
        await out(home, "cd a/b; export GREETING='hello\nworld = 1' EMPTY=; local=hidden", language)
        assert (
            await out(home, 'pwd; echo "$GREETING|$EMPTY|$local"', language) == "/workspace/a/b\nhello\nworld = 1||\n"
        )
        code = "import os\nos.getcwd(), os.environ['GREETING'], os.environ['EMPTY'], 'local' in os.environ"
        assert await out(home, code) == "('/workspace/a/b', 'hello\\nworld = 1', '', False)\n"
        await out(home, "os.chdir('..'); os.environ['GREETING'] = 'from python'; del os.environ['EMPTY']")
        assert await out(home, 'pwd; echo "$GREETING|${EMPTY-unset}"', language) == "/workspace/a\nfrom python|unset\n"
        await out(home, "unset GREETING; cd /workspace", language)
        assert await out(home, "'GREETING' in os.environ, os.getcwd()") == "(False, '/workspace')\n"

    async def test_shells_share_exported_functions_of_bash(self, home: DockerCommandLineCodeExecutor) -> None:
        await out(home, "twice() { echo $1$1; }; export -f twice", "bash")
        assert await out(home, "twice ab", "bash") == "abab\n"
        await out(home, "unset -f twice", "bash")

    async def test_shell_ends_with_its_exit_code(self, home: DockerCommandLineCodeExecutor) -> None:
        for code, verdict in [
            ("export KEPT=1; exit 3", ("error", 3, "")),
            ("export KEPT=1; exit 0; echo never", ("ok", 0, "")),
            ("set -e; export KEPT=1; false; echo never", ("error", 1, "")),
            ("set -eu; export KEPT=1; cat /nonexistent 2>/dev/null", ("error", 1, "")),
            ("export KEPT=1; kill -TERM $$", ("crashed", 143, "")),
            ("echo ' unfinished", ("error", 2, None)),
        ]:
            with case(code, verdict):
                result = await run(home, code)  # as Python: an error, and the session lives
                assert result.outcome == "error"
                result = await run(home, code, "sh")
                assert (result.outcome, result.exit_code) == verdict[:2], result
                assert verdict[2] is None or result.output == verdict[2]
                assert result.state == "kept"
                if "KEPT" in code and result.outcome != "crashed":
                    assert await out(home, "echo $KEPT", "sh") == "1\n"
                await out(home, "unset KEPT; cd /workspace", "sh")

    async def test_shells_survive_that_their_directory_is_removed(self, home: DockerCommandLineCodeExecutor) -> None:
        await out(home, "mkdir /workspace/gone; cd /workspace/gone; rmdir /workspace/gone", "sh")
        for _ in range(2):
            await out(home, "print('python')")
            await out(home, "echo shell", "sh")
        await out(home, "cd /workspace", "sh")
        await out(
            home, "import os; os.makedirs('/workspace/gone'); os.chdir('/workspace/gone'); os.rmdir('/workspace/gone')"
        )
        assert (await out(home, "echo shell", "bash")).endswith("shell\n")
        await out(home, "import os; os.chdir('/workspace')")

    async def test_shells_survive_an_empty_path(self, home: DockerCommandLineCodeExecutor) -> None:
        path = (await out(home, "echo $PATH", "sh")).strip()
        await out(home, "export PATH=/nonexistent", "sh")
        assert await out(home, "import os; os.environ['PATH'], os.environ['HOME']") == "('/nonexistent', '/tmp/home')\n"
        assert (await run(home, "ls", "sh")).exit_code == 127
        await out(home, f"os.environ['PATH'] = {path!r}")
        assert await out(home, "echo $PATH", "sh") == path + "\n"

    async def test_shells_take_a_large_environment(self, home: DockerCommandLineCodeExecutor) -> None:
        await out(home, "import os\nfor n in range(2000): os.environ[f'LARGE_{n}'] = 'ä' * 100")
        assert await out(home, "env | grep -c ^LARGE_", "sh") == "2000\n"
        await out(home, "for n in $(seq 0 1999); do unset LARGE_$n; done", "bash")
        assert await out(home, "sum(name.startswith('LARGE_') for name in os.environ)") == "0\n"

    async def test_too_large_environment_is_reported(self, home: DockerCommandLineCodeExecutor) -> None:
        result = await run(home, "import os; os.environ['HUGE'] = 'x' * 5_000_000; 'set'")
        assert (result.output, result.state) == ("'set'\n", "kept")
        assert "too large" in result.notes[0]
        assert await out(home, "echo ${HUGE-unset}", "sh") == "unset\n"
        await out(home, "del os.environ['HUGE']")
        # What the system's own call refuses is a result.
        await out(home, "os.environ['LONG'] = 'x' * 200_000")
        result = await run(home, "echo", "sh")
        assert (result.outcome, result.exit_code) == ("error", 126)
        await out(home, "del os.environ['LONG']")

    async def test_garbage_on_the_state_descriptor_harms_nothing(self, home: DockerCommandLineCodeExecutor) -> None:
        await out(home, "import os; kept = dict(os.environb)")
        await run(home, r"printf '/nonexistent\0=x\0=\0A\0B=1\0\377\376=\377\0' >&9; exec 9>&-", "sh")
        assert (await out(home, "import os; os.environ.get('B'), os.environb.get(b'\\xff\\xfe')")).endswith(
            "('1', b'\\xff')\n"
        )
        assert (await out(home, "echo shell", "sh")).endswith("shell\n")
        # The other tests need what it has replaced.
        await out(home, "os.chdir('/workspace'); os.environb.clear(); os.environb.update(kept)")
