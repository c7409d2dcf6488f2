"""What type checkers must report: each line that ends in `# wrong`, and no other."""

from pathlib import Path

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact import AsyncSandbox, CodeActAgent, CodeExecutorAgent, DockerCommandLineCodeExecutor, Sandbox
from autogen_codeact.batch import Task
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, ExecutorPool, Limits, ToolLimits
from autogen_codeact.executors.pool import choose_executor
from codeact_sandbox import BubblewrapOptions, DockerOptions

Sandbox()
Sandbox(timeot=3)  # wrong
Sandbox(timeout="3")  # wrong
Sandbox(memory=2.5)  # wrong
Sandbox(limits="2g")  # wrong
Sandbox(limits=Limits(memory="2g"))
Sandbox(packages="numpy", work_dir=Path())
Sandbox(mode="repl")  # wrong
Sandbox("podman")  # wrong
Sandbox("bubblewrap", python="/usr/bin/python3", tools=[len])
Sandbox(tools=3)  # wrong
AsyncSandbox(allow_pip="no")  # wrong
AsyncSandbox(environment={"KEY": "${KEY}"}, allow_domains=["a.example"], data=["a.csv"], docker_host="tcp://a:2375")
DockerOptions(image=3)  # wrong
BubblewrapOptions(image="x")  # wrong
Limits(pids="many")  # wrong
ToolLimits(call=3)  # wrong
DockerCommandLineCodeExecutor()
DockerCommandLineCodeExecutor("python:3-slim", "name", timeout=10, functions=[len], tools=[len], memory="2g")
DockerCommandLineCodeExecutor(3)  # wrong
DockerCommandLineCodeExecutor(python="/usr/bin/python3")  # wrong
BubblewrapCommandLineCodeExecutor(timeout=10, work_dir="coding")
BubblewrapCommandLineCodeExecutor(image="x")  # wrong
ExecutorPool(2, timeout=10, cpus=2, tools=[len])
ExecutorPool(backend="podman")  # wrong
ExecutorPool().executor(timeot=3)  # wrong
Task(id=1, task="What is 1 + 1?", check={"kind": "number"}, expected=2)
Task(id="1", task="", check="exact")
Task(id="1", task="", check="numbr")  # wrong
CodeExecutorAgent("a", DockerCommandLineCodeExecutor(), max_retries=3)  # wrong
CodeActAgent("a", DockerCommandLineCodeExecutor())  # wrong

with Sandbox() as box:
    box.run(42)  # wrong
    box.run("1", timeot=3)  # wrong
    box.run("1").valu  # wrong
    box.run("1").value.anything
    box.run("1").value_repr.upper()  # wrong
    for item in box.stream("1"):
        item.text  # wrong
    box.write("a", 3)  # wrong


async def main() -> None:
    """Run code."""
    await choose_executor("docker", timeot=3)  # wrong
    async with AsyncSandbox() as box_of_async:
        (await box_of_async.run(42)).output  # wrong
        box_of_async.run("1").output  # wrong
        async for _ in box_of_async.stream(1):  # wrong
            pass
    async with DockerCommandLineCodeExecutor() as executor:
        await executor.execute_code_blocks([CodeBlock(code="1", language="python")], CancellationToken())
        await executor.execute_code_blocks("1", CancellationToken())  # wrong
        executor.timeot  # wrong
