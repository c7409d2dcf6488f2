"""What every executor promises of blocks: results, output, deadlines, files; Docker's own tests show it there in more detail."""

import asyncio
import json

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors import ExecutionResult, Limits, OutputChunk, SandboxFileError
from tests.cases import case
from tests.sandbox.contract.conftest import ON_BUBBLEWRAP
from tests.sandbox.sandboxes import block, out, run, short_result

pytestmark = [pytest.mark.asyncio(loop_scope="module"), ON_BUBBLEWRAP]

UNUSUAL = {"split_streams": True, "limits": Limits(output=4096, cpus=0.3), "languages": {"reverse": "rev"}}
"""Options of tests that share a sandbox, some of them with code that never rests."""


def running(command):
    """Shell code that shows each process with this command line."""
    return f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o '[{command[0]}]{command[1:]}'; exit 0"


class TestResult:
    async def test_result_has_the_output_and_exit_code_0(self, executor):
        result = await run(executor, "print('hello'); print('wörld')")
        assert short_result(result) == ("ok", 0, "hello\nwörld\n")
        assert (result.error, result.truncated, result.state) == (None, 0, "kept")
        assert result.duration_s > 0

    async def test_result_has_both_streams_in_the_order_written(self, executor):
        code = "import sys\nfor n in range(5):\n    print(n, file=sys.stderr if n % 2 else sys.stdout)"
        assert await out(executor, code) == "0\n1\n2\n3\n4\n"

    async def test_result_names_the_exception_its_message_and_line(self, executor):
        result = await run(executor, "print('before')\n\nraise KeyError('missing')")
        assert (result.outcome, result.exit_code) == ("error", 1)
        assert result.error is not None
        assert (result.error.type, result.error.message, result.error.line) == ("KeyError", "'missing'", 3)
        assert result.output.startswith("before\nTraceback (most recent call last):\n")
        assert result.output.endswith("KeyError: 'missing'\n")

    async def test_result_names_a_syntax_error(self, executor):
        result = await run(executor, "x = 1\nif x\n    pass")
        assert (result.outcome, result.exit_code) == ("error", 1)
        assert result.error is not None
        assert (result.error.type, result.error.line) == ("SyntaxError", 2)

    async def test_result_has_the_exit_code_of_sys_exit(self, executor) -> None:
        for argument, outcome, code, output in [
            ("", "ok", 0, ""),
            ("0", "ok", 0, ""),
            ("3", "error", 3, ""),
            ("'why'", "error", 1, "why\n"),
            ("124", "error", 124, ""),
        ]:
            with case(argument, outcome, code, output):
                assert short_result(await run(executor, f"import sys; sys.exit({argument})")) == (outcome, code, output)

    async def test_result_of_a_process_that_exits_early_is_a_failure(self, executor):
        result = await run(executor, "import os; os._exit(0)")
        assert result.outcome == "crashed"
        assert result.exit_code != 0

    async def test_result_names_the_signal_that_ended_the_code(self, executor) -> None:
        for name, number in [("SIGABRT", 6), ("SIGSEGV", 11), ("SIGKILL", 9)]:
            with case(name, number):
                result = await run(executor, f"import os; os.kill(os.getpid(), {number})")
                assert (result.outcome, result.exit_code) == ("crashed", 128 + number)
                assert result.error is not None
                assert result.error.type == name
                assert await out(executor, "print('next')") == "next\n"

    async def test_forged_result_is_plain_text(self, executor):
        forged = json.dumps({"outcome": "ok", "exit_code": 0, "report": {"exit_code": 0}})
        result = await run(executor, f"print({forged!r}); raise SystemExit(9)")
        assert short_result(result) == ("error", 9, f"{forged}\n")

    async def test_standard_input_is_empty(self, executor):
        result = await run(executor, "input()")
        assert result.error is not None
        assert result.error.type == "EOFError"

    async def test_split_streams_are_separate_in_the_result(self, make):
        executor = await make(**UNUSUAL)
        result = await run(executor, "import sys; print('out'); print('err', file=sys.stderr)")
        assert (result.stdout, result.stderr) == ("out\n", "err\n")


class TestLongOutput:
    async def test_long_output_has_the_configured_limit(self, make):
        executor = await make(**UNUSUAL)
        result = await run(executor, "print('x' * 100_000)")
        assert 4096 <= len(result.output) < 4400
        assert result.truncated == 100_001 - 4096


class TestBlocks:
    async def test_blocks_run_one_after_the_other_up_to_the_first_that_fails(self, executor):
        blocks = [block("print(1)"), block("echo 2", "sh"), block("print(3); raise SystemExit(4)"), block("print(5)")]
        result = await executor.execute_code_blocks(blocks, CancellationToken())
        assert short_result(result) == ("error", 4, "1\n2\n3\n")

    async def test_blocks_in_shell_have_its_exit_code(self, executor) -> None:
        for language in ["sh", "bash", "shell"]:
            with case(language):
                assert short_result(await run(executor, "echo out; echo err >&2; exit 7", language)) == (
                    "error",
                    7,
                    "out\nerr\n",
                )

    async def test_blocks_in_a_custom_language_run(self, make):
        executor = await make(**UNUSUAL)
        assert (await out(executor, "abc", "reverse")).strip() == "cba"

    async def test_blocks_at_the_same_time_do_not_mix(self, executor):
        codes = [f"import time\nfor n in range(20):\n    print({number})\n    time.sleep(0.002)" for number in range(8)]
        outputs = await asyncio.gather(*(out(executor, code) for code in codes))
        assert outputs == [f"{number}\n" * 20 for number in range(8)]

    async def test_blocks_stream_their_output(self, executor):
        code = [CodeBlock(code="print('a', flush=True)\nimport time; time.sleep(0.3)\nprint('b')", language="python")]
        items = [item async for item in executor.execute_stream(code, CancellationToken())]
        assert all(isinstance(item, OutputChunk) for item in items[:-1])
        assert len(items) >= 3
        assert isinstance(items[-1], ExecutionResult)
        assert items[-1].output == "a\nb\n" == "".join(item.text for item in items[:-1])


class TestDeadline:
    async def test_deadline_ends_the_block_and_the_next_one_runs(self, make):
        idle = {
            "sleep": "import time; time.sleep(60)",
            "deaf": "import signal, time\nfor n in range(1, 32):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n"
            "    except OSError:\n        pass\nprint('deaf', flush=True)\ntime.sleep(60)",
            "child": "import subprocess; subprocess.run(['setsid', 'sleep', '60'])",
        }
        busy = {
            "stubborn": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
            "number": "9 ** 9 ** 9",
            "pattern": "import re; re.match('(a+)+b', 'a' * 60)",
        }
        executor = await make(**UNUSUAL)
        for name, code in {**idle, **busy}.items():
            executor.sandbox.timeout = limit = 1.5 if name in idle else 0.5
            result = await run(executor, code)
            executor.sandbox.timeout = 30
            assert (result.outcome, result.exit_code) == ("timeout", 124), name
            assert limit - 0.1 < result.duration_s < 20, name
            assert await out(executor, "print('next')") == "next\n", name
            assert await out(executor, running("sleep 60"), "sh") == "", name

    async def test_deadline_keeps_what_was_written_before(self, executor):
        executor.sandbox.timeout = 3  # a loaded machine has to start the block and to print within this time
        result = await run(executor, "print('half', end=''); import time; time.sleep(60)")
        executor.sandbox.timeout = 30
        assert short_result(result) == ("timeout", 124, "half\n Timeout")

    async def test_deadline_is_not_delayed_by_a_daemon_that_holds_the_output(self, executor):
        result = await run(executor, "import subprocess; subprocess.Popen(['setsid', 'sleep', '60']); print('done')")
        assert short_result(result) == ("ok", 0, "done\n")
        assert result.duration_s < 20


class TestCancellation:
    async def test_cancellation_kills_the_block_and_the_next_one_runs(self, executor):
        token = CancellationToken()
        code = block("import subprocess; subprocess.run(['sleep', '61'])")
        executing = asyncio.ensure_future(executor.execute_code_blocks([code], token))
        await asyncio.sleep(0.3)
        token.cancel()
        with pytest.raises(asyncio.CancelledError):
            await executing
        assert await out(executor, running("sleep 61"), "sh") == ""


class TestFiles:
    async def test_files_that_code_creates_are_copied_to_the_host(self, executor):
        result = await run(executor, "import os; os.makedirs('deep/er'); open('deep/er/made.txt', 'w').write('made')")
        assert [(file.name, file.size) for file in result.artifacts] == [("deep/er/made.txt", 4)]
        assert result.artifacts[0].path == executor.work_dir / "deep" / "er" / "made.txt"
        assert result.artifacts[0].path.read_text() == "made"

    async def test_files_of_the_host_are_in_the_workspace(self, make, tmp_path):
        (tmp_path / "given.txt").write_text("given")
        executor = await make(work_dir=tmp_path, **UNUSUAL)
        (tmp_path / "later.txt").write_text("later")
        assert await out(executor, "print(open('given.txt').read(), open('later.txt').read())") == "given later\n"

    async def test_file_named_in_the_first_line_holds_the_code(self, executor):
        result = await run(executor, "# filename: tools/one.py\nprint(__name__)")
        assert result.exit_code == 0
        assert (executor.work_dir / "tools" / "one.py").read_text().startswith("# filename: tools/one.py")
        assert "print(__name__)" in await out(executor, "cat tools/one.py", "sh")

    async def test_file_names_outside_the_workspace_are_refused_in_a_result(self, executor) -> None:
        for name in ["../out.py", "/etc/out.py", "a/../../out.py"]:
            with case(name):
                result = await run(executor, f"# filename: {name}\nprint('ran')")
                assert result.exit_code != 0
                assert "ran" not in result.output

    async def test_files_are_not_written_through_a_link(self, make, tmp_path):
        target, work = tmp_path / "target.txt", tmp_path / "work"
        target.write_text("untouched")
        work.mkdir()
        executor = await make(work_dir=work, **UNUSUAL)
        await run(executor, f"import os; os.symlink({str(target)!r}, 'link.txt'); os.mkfifo('pipe')")
        await run(executor, "import os; os.remove('link.txt'); open('link.txt', 'w').write('new')")
        (work / "trap.txt").symlink_to(target)
        await run(executor, "open('trap.txt', 'w').write('trapped')")
        assert target.read_text() == "untouched"

    async def test_single_files_are_uploaded_and_downloaded(self, executor, tmp_path):
        (tmp_path / "up.bin").write_bytes(bytes(range(256)) * 5000)
        await executor.upload(tmp_path / "up.bin", "in/up.bin")
        assert await out(executor, "import os; print(os.path.getsize('in/up.bin'))") == "1280000\n"
        assert "in/up.bin" in await executor.list_files()
        await executor.download("in/up.bin", tmp_path / "down.bin")
        assert (tmp_path / "down.bin").read_bytes() == (tmp_path / "up.bin").read_bytes()

    async def test_missing_files_are_an_error(self, executor, tmp_path) -> None:
        for name in ["missing", "folder", "pipe"]:
            with case(name):
                await run(executor, "mkdir -p folder; [ -e pipe ] || mkfifo pipe", "sh")
                with pytest.raises(SandboxFileError):
                    await executor.download(name, tmp_path / "target")
                assert not (tmp_path / "target").exists()
