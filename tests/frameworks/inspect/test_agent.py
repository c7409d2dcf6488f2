"""Evaluations of Inspect, with its agent and tools, in sandboxes."""

import os
import signal
import subprocess
import sys
from textwrap import dedent

import anyio
import pytest
from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageTool, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, accuracy, scorer
from inspect_ai.solver import solver
from inspect_ai.tool import bash, python
from inspect_ai.util import (
    OutputLimitExceededError,
    SandboxEnvironmentSpec,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandbox,
)
from scripted import call, run_program, sandboxes, tool_results, wait_until

from codeact_sandbox.integrations.inspect_ai import CodeactConfig, CodeactSandboxEnvironment

QUIET = {"display": "none", "log_level": "critical", "score_display": False}


def model_of(calls):
    """A model that makes the calls in each sample, one after the other, and then submits."""

    def answer(messages, *_):
        done = sum(isinstance(message, ChatMessageTool) for message in messages)
        name, arguments = [*calls, ("submit", {"answer": "done"})][done]
        output = ModelOutput.for_tool_call("mockllm", name, arguments)
        output.usage = ModelUsage()  # else its tokens are counted, with a table of the network
        return output

    return get_model("mockllm/model", custom_outputs=answer, memoize=False)


def spec_of(engine, **options):
    return SandboxEnvironmentSpec("codeact", CodeactConfig(backend=engine, **options))


@scorer(metrics=[accuracy()])
def file_out():
    async def score(state, target):
        return Score(value=await sandbox().read_file("note.txt") == f"{target.text}\n", answer=state.output.completion)

    return score


def test_an_agent_uses_tools_in_the_sandboxes_of_several_samples(engine, tmp_path):
    calls = [
        ("python", {"code": "import pathlib; pathlib.Path('note.txt').write_text(open('data/name').read())"}),
        ("bash", {"command": "echo >> note.txt; cat note.txt; id -u nobody; nothing-here"}),
        ("bash", {"command": "echo before; sleep 60"}),
        ("bash", {"command": "yes | head -c 20000000"}),
        ("bash", {"command": "cat note.txt; wc -l < big"}),
    ]
    waiting, all_there = [], anyio.Event()

    @solver
    def all_at_once():
        async def solve(state, generate):
            waiting.append(len(sandboxes()))
            if len(waiting) == 3:
                all_there.set()
            with anyio.fail_after(60):
                await all_there.wait()
            return state

        return solve

    names = ("ann", "bob", "eve")
    samples = [Sample("Go.", target=name, files={"data/name": name}, setup="seq 9 > big") for name in names]
    agent = react(tools=[bash(timeout=10), python(timeout=30)])
    task = Task(samples, solver=[all_at_once(), agent], scorer=file_out(), sandbox=spec_of(engine, memory="512m"))
    (log,) = evaluate(task, model=model_of(calls), log_dir=str(tmp_path), max_sandboxes=3, **QUIET)
    assert log.status == "success", log.error
    assert max(waiting) == 3
    assert log.eval.sandbox.config.model_dump() == {"backend": engine, "memory": "512m"}
    for sample, name in zip(log.samples, names, strict=True):
        told = [message for message in sample.messages if isinstance(message, ChatMessageTool)]
        written, shown, late, flood, again = told
        assert (written.text, written.error) == ("", None)
        assert shown.text.endswith(f"\n{name}\n65534\n")
        assert "nothing-here: command not found" in shown.text
        assert (late.error.type, late.text) == ("timeout", "before\n")
        assert (flood.error.type, flood.error.message) == ("limit", "The tool exceeded its output limit of 10 MiB.")
        assert again.text == f"{name}\n9\n"
        assert {key: score.value for key, score in sample.scores.items()} == {"file_out": True}
    assert wait_until(lambda: not sandboxes())


def test_no_sandbox_is_left_after_an_error(engine, tmp_path):
    seen = []

    @solver
    def fails():
        async def solve(state, generate):
            seen.append(len(sandboxes()))
            raise RuntimeError("nothing works")

        return solve

    task = Task([Sample("Go.")], solver=fails(), sandbox=spec_of(engine))
    (log,) = evaluate(task, model=model_of([]), log_dir=str(tmp_path), **QUIET)
    assert (log.status, seen) == ("error", [1])
    assert wait_until(lambda: not sandboxes())


def test_options_that_do_not_fit_end_an_evaluation_before_its_samples(engine, tmp_path):
    task = Task([Sample("Go.")], sandbox=spec_of(engine, memory="1m"))
    with pytest.raises(ValueError, match="a sandbox needs 20m to start"):
        evaluate(task, model=model_of([]), log_dir=str(tmp_path), **QUIET)


def test_no_sandbox_is_left_after_an_interruption(engine, tmp_path):
    program = f"""
        from inspect_ai import Task, eval
        from inspect_ai.dataset import Sample
        from inspect_ai.solver import solver
        from inspect_ai.util import SandboxEnvironmentSpec, sandbox
        from codeact_sandbox.integrations.inspect_ai import CodeactConfig

        @solver
        def sleeps():
            async def solve(state, generate):
                print("running", flush=True)
                await sandbox().exec(["sleep", "100"])
            return solve

        spec = SandboxEnvironmentSpec("codeact", CodeactConfig(backend={engine!r}))
        task = Task([Sample("1"), Sample("2")], solver=sleeps(), sandbox=spec)
        eval(task, model="mockllm/model", log_dir={str(tmp_path)!r}, display="none")
        """
    with subprocess.Popen(
        [sys.executable, "-c", dedent(program)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            lines = (line for line in process.stdout if line == "running\n")
            next(lines), next(lines)
            assert wait_until(lambda: len(sandboxes(process.pid)) == 2)
            os.kill(process.pid, signal.SIGINT)
            process.communicate(timeout=60)
        finally:
            process.kill()
    assert wait_until(lambda: not sandboxes(process.pid))


async def test_errors_are_those_of_inspect(engine):
    environments = await CodeactSandboxEnvironment.sample_init("errors", CodeactConfig(backend=engine), {})
    box = environments["default"]
    try:
        own = (await box.exec(["id", "-un"])).stdout.strip()
        assert (await box.exec(["true"], user=own)).success
        with pytest.raises(SandboxUserUnsupportedError, match="and not as 'root'"):
            await box.exec(["true"], user="root")
        with pytest.raises(ValueError, match="embedded null byte"):
            await box.exec(["echo", "a\0b"])
        with pytest.raises(FileNotFoundError):
            await box.exec(["true"], cwd="nothing")
        with pytest.raises(OutputLimitExceededError) as caught:
            await box.exec(["sh", "-c", "yes | head -c 20000000"])
        assert len(caught.value.truncated_output) == 10 * 1024**2
        await box.box.stop()
        with pytest.raises(SandboxUnavailableError, match="has ended, with its files"):
            await box.read_file("note.txt")
    finally:
        await CodeactSandboxEnvironment.sample_cleanup("errors", None, environments, interrupted=True)


@pytest.mark.usefixtures("engine")
def test_the_program_of_the_page_runs(serve, tmp_path):
    server = serve([call("python", code="print(2**100)"), call("submit", answer="1267650600228229401496703205376")])
    assert run_program("Inspect", server, tmp_path).strip().endswith("success 1.0")
    assert tool_results(server) == ["1267650600228229401496703205376\n"]
