"""What a block writes: capped with head and tail, counted, decoded, and never in the way of its end."""

import pytest
from autogen_core import CancellationToken

from autogen_codeact.executors import ExecutionResult
from tests.cases import case
from tests.sandbox.sandboxes import block, out, run, shared_executor

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1024 * 1024


executor = shared_executor("process", "session", timeout=20)


class TestOutputLimit:
    async def test_output_limit_keeps_head_and_tail_and_counts_the_rest(self, executor):
        result = await run(executor, "for n in range(8_000): print(f'line {n:0200}')")
        written = sum(len(f"line {n:0200}\n") for n in range(8_000))
        head, note, tail = result.output.partition(f"\n[... {result.truncated:,} bytes dropped ...]\n")
        assert note
        assert len(head) + len(tail) == MIB
        assert result.truncated == written - MIB
        assert head.startswith(f"line {0:0200}\nline {1:0200}\n")
        assert tail.endswith(f"line {7998:0200}\nline {7999:0200}\n")
        whole = "".join(f"line {n:0200}\n" for n in range(8_000))
        assert whole.startswith(head)
        assert whole.endswith(tail)

    async def test_output_within_the_limit_is_unchanged(self, executor):
        for size in [0, 1, MIB // 2, MIB // 2 + 1, MIB - 1, MIB]:
            with case(size):
                result = await run(
                    executor, f"import sys; data = 'ab' * {size // 2} + 'x' * {size % 2}; _n = sys.stdout.write(data)"
                )
                assert (result.output, result.truncated) == ("ab" * (size // 2) + "x" * (size % 2), 0)

    async def test_dropped_bytes_of_several_blocks_are_added_up(self, executor):
        code = f"import sys; _n = sys.stdout.write('x' * {MIB + 5})"
        result = await executor.execute_code_blocks([block(code), block(code)], CancellationToken())
        assert result.truncated == 10


class TestDecoding:
    async def test_bytes_of_a_character_stay_together_across_frames(self, executor):
        text = "ä€\U0001f600" * 50_000
        assert await out(executor, "print('ä€\U0001f600' * 50_000)") == text + "\n"


class TestPartialOutput:
    async def test_partial_output_of_whole_lines_is_never_lost(self, executor):
        for end in ["os.kill(os.getpid(), 9)", "os._exit(3)", "import time; time.sleep(60)", "os.abort()"]:
            with case(end):
                executor.sandbox.timeout = 3
                result = await run(executor, f"import os\nfor n in range(1000): print(n)\n{end}")
                executor.sandbox.timeout = 20
                late = "\n Timeout" * (result.outcome == "timeout")
                assert result.output == "".join(f"{n}\n" for n in range(1000)) + late


class TestStream:
    async def test_stream_shows_output_while_the_block_runs(self, executor, tmp_path):
        (tmp_path / "seen").write_text("")
        # It goes on only when what it wrote has been seen.
        code = """
            import os, time
            for n in range(3):
                print(n)
                while not os.path.exists(f"/workspace/seen{n}"): time.sleep(0.01)
        """
        texts, results = ["", ""], []
        async for item in executor.execute_stream([block(code), block("echo shell", "sh")], CancellationToken()):
            if isinstance(item, ExecutionResult):
                results.append(item)
                continue
            texts[item.block] += item.text
            if item.block == 0 and item.text.endswith("\n"):
                await executor.upload(tmp_path / "seen", f"seen{texts[0].split()[-1]}")
        assert texts == ["0\n1\n2\n", "shell\n"]
        assert [result.output for result in results] == ["0\n1\n2\nshell\n"]
