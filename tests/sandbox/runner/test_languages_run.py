"""Languages in the default image, in both modes: those that it has, those that it lacks, those that nobody knows."""

import pytest

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from codeact_sandbox.types.languages import LANGUAGES
from tests.cases import case
from tests.sandbox.sandboxes import block, out, run, shared_executor

pytestmark = pytest.mark.asyncio(loop_scope="module")


executor = shared_executor(
    "process",
    "session",
    kind=DockerCommandLineCodeExecutor,
    timeout=20,
)


async def test_runs(executor: DockerCommandLineCodeExecutor) -> None:
    for label, code, output in [
        ("python", "print('python')", "python\n"),
        ("Python", "print('python')", "python\n"),
        ("py", "print('python')", "python\n"),
        ("python3", "print('python')", "python\n"),
        ("python3.11", "print('python')", "python\n"),
        ("sh", "echo sh", "sh\n"),
        ("shell", "echo sh", "sh\n"),
        ("bash", "[[ a == a* ]] && echo bash", "bash\n"),
        ("perl", 'print "perl\\n";', "perl\n"),
    ]:
        with case(label, code, output):
            assert await out(executor, code, label) == output


async def test_a_script_has_its_name_and_its_own_exit_code(executor: DockerCommandLineCodeExecutor) -> None:
    assert await out(executor, '# filename: tool.pl\nprint "$0\\n";', "perl") == "/workspace/tool.pl\n"
    result = await run(executor, "exit 7;", "perl")
    assert (result.outcome, result.exit_code) == ("error", 7)
    result = await run(executor, 'die "dead\\n";', "perl")
    assert (result.outcome, result.output) == ("error", "dead\n")
    result = await run(executor, "kill 'SEGV', $$; sleep 5;", "perl")
    assert (result.outcome, result.exit_code) == ("crashed", 139)
    assert result.error.type == "SIGSEGV"


async def test_a_missing_interpreter_is_a_result_with_the_reason(executor: DockerCommandLineCodeExecutor) -> None:
    result = await run(executor, "1", "julia")
    assert (result.outcome, result.exit_code) == ("error", 127)
    assert result.output == "julia: not found\n"
    assert result.error.type == "InterpreterNotFound"


async def test_an_unknown_label_is_a_result_with_the_known_ones(executor: DockerCommandLineCodeExecutor) -> None:
    for label in ("cobol", "", "../sh", "python; rm", "\0"):
        result = await run(executor, "1", label)
        assert (result.outcome, result.exit_code) == ("error", 127)
        assert result.error.type == "UnknownLanguage"
        assert "Use python or sh, or what the image has a command for: bash, " in result.output


async def test_every_known_language_ends_in_a_typed_result(executor):
    # One after the other: beside all others, the start of an interpreter may take longer than a block.
    for name in LANGUAGES:
        with case(name):
            result = await run(executor, "this is no program", name)
            assert result.outcome == "error", result
            assert result.output


async def test_code_is_data_to_a_shell(executor: DockerCommandLineCodeExecutor) -> None:
    assert await out(executor, block("echo '$HOME'; printf '%s\\n' \"a\\\\nb\" '`id`'", "sh")) == "$HOME\na\\nb\n`id`\n"


async def test_a_large_shell_block_runs(executor: DockerCommandLineCodeExecutor) -> None:
    assert await out(executor, "echo begin\n" + "# padding\n" * 300_000 + "echo end", "sh") == "begin\nend\n"


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("enum E { A = 1 }\nconst x: Array<E> = [E.A]; console.log(x)", "[ 1 ]\n"),
        ("const v = await Promise.resolve<number>(5);\nconsole.log(v)", "5\n"),
        ("const fs = require('fs'); const n: string = typeof fs; console.log(n)", "object\n"),
        ("import type { A } from './none';\nimport path from 'node:path';\nconsole.log(path.sep as string)", "/\n"),
        ("class C<T> { constructor(public t: T) {} }\nconsole.log(new C<string>('s').t)", "s\n"),
    ],
)
async def test_typescript_runs(executor: DockerCommandLineCodeExecutor, code: str, output: str) -> None:
    assert await out(executor, code, "typescript") == output


async def test_wrong_typescript_is_an_error(executor: DockerCommandLineCodeExecutor) -> None:
    result = await run(executor, "const x: = 3", "ts")
    assert result.exit_code == 1
    assert "Unexpected" in result.output
