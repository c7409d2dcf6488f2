"""The options model, one place where an option is written down; and the default of the memory limit."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.executors import (
    BubblewrapCommandLineCodeExecutor,
    DockerCommandLineCodeExecutor,
    ExecutorPool,
    ToolLimits,
)
from autogen_codeact.executors.auto import choose_executor
from codeact_sandbox import AsyncSandbox, Sandbox, SandboxPool
from codeact_sandbox.backends.docker import engine
from codeact_sandbox.facts import known_facts
from codeact_sandbox.types import limits as module
from codeact_sandbox.types.limits import Limits, machine_memory
from codeact_sandbox.types.option_parsing import parse_options, parse_texts
from codeact_sandbox.types.options import BubblewrapOptions, DockerOptions, SandboxOptions
from tests.cases import case

NO_NETWORK = (
    "is not a Docker network: give 'none', 'bridge' (which reaches the internet), or the name of one of your own"
)


def test_an_error_says_which_option_is_wrong() -> None:
    for options, error, words in [
        ({"colour": "red"}, TypeError, "DockerOptions() has no option 'colour'"),
        ({"mode": "repl"}, ValueError, "mode must be 'process' or 'session', not 'repl'"),
        ({"timeout": 0}, ValueError, "Timeout must be greater than or equal to 1 ms (timeout=0.001), not 0 s"),
        (
            {"timeout": float("nan")},
            ValueError,
            "Timeout must be greater than or equal to 1 ms (timeout=0.001), not nan s",
        ),
        ({"timeout": True}, ValueError, "timeout must be a number of seconds, not True"),
        ({"timeout": None}, ValueError, "timeout must be a number of seconds, not None"),
        ({"timeout": "10"}, ValueError, "timeout must be a number of seconds, not '10'"),
        (
            {"limits": "1g"},
            TypeError,
            "limits must be Limits(memory='512m', ...), not '1g'; each limit is also an option by its name: memory='512m'",
        ),
        ({"network": True}, ValueError, f"network=True {NO_NETWORK}"),
        ({"network": ""}, ValueError, f"network='' {NO_NETWORK}"),
        ({"preload": "numpy"}, TypeError, "preload is one string: give a list, ['numpy']"),
        ({"preload": 5}, TypeError, "preload must be a list of names, not 5"),
        ({"data": {"a": "b"}}, TypeError, "data must be a list of names, not {'a': 'b'}"),
        ({"memory": [1]}, ValueError, "DockerOptions(memory=…): Input should be a valid string"),
        ({"packages": "numpy"}, TypeError, "packages is one string: give a list, ['numpy']"),
        (
            {"read_only": "perhaps"},
            ValueError,
            "DockerOptions(read_only=…): Input should be a valid boolean, unable to interpret input",
        ),
        (
            {"functions_module": "a b"},
            ValueError,
            "functions_module must be an identifier such as 'functions', not 'a b'.",
        ),
        (
            {"network": "bridge", "allow_domains": ["a.example"]},
            ValueError,
            "allow_domains= is for a sandbox without a network, and network='bridge' gives it one",
        ),
        (
            {"environment": "KEY"},
            TypeError,
            "`environment` is one string; give a list of names such as ['API_KEY'], or a mapping.",
        ),
    ]:
        with case(options, error, words):
            with pytest.raises(error) as caught:
                parse_options(DockerOptions, options)
            assert str(caught.value) == words


CALLED: dict[str, tuple[Callable[[], object], str]] = {
    "Sandbox": (lambda: Sandbox(timeot=3), "timeout"),  # type: ignore[call-arg]
    "AsyncSandbox": (lambda: AsyncSandbox(toolz=[]), "tools"),  # type: ignore[call-arg]
    "DockerOptions": (lambda: DockerOptions(timeot=3), "timeout"),  # type: ignore[call-arg]
    "BubblewrapOptions": (lambda: BubblewrapOptions(redable=3), "readable"),  # type: ignore[call-arg]
    "Limits": (lambda: Limits(memry="1g"), "memory"),  # type: ignore[call-arg]
    "ToolLimits": (lambda: ToolLimits(call=3), "calls"),  # type: ignore[call-arg]
    "DockerCommandLineCodeExecutor": (lambda: DockerCommandLineCodeExecutor(memroy="1g"), "memory"),  # type: ignore[call-arg]
    "BubblewrapCommandLineCodeExecutor": (lambda: BubblewrapCommandLineCodeExecutor(pythn=""), "python"),  # type: ignore[call-arg]
    "SandboxPool": (lambda: SandboxPool(max_alve=3), "max_alive"),  # type: ignore[call-arg]
    "ExecutorPool": (lambda: ExecutorPool(functins=[]), "functions"),  # type: ignore[call-arg]
    "choose_executor": (lambda: asyncio.run(choose_executor("docker", timeot=3)), "timeout"),  # type: ignore[call-arg]
}


def test_unknown_option_names_what_was_called_and_the_nearest_option() -> None:
    for name, (call, near) in CALLED.items():
        with (
            case(name),
            pytest.raises(
                TypeError, match=rf"^{name.split(maxsplit=1)[0]}\(\) has no option '\w+'; did you mean '{near}'\?$"
            ),
        ):
            call()


TWO_GB: dict[str, Callable[[], SandboxOptions]] = {
    "Sandbox": lambda: Sandbox(memory="2g", cpus=2)._managed.options,
    "AsyncSandbox": lambda: AsyncSandbox("bubblewrap", memory="2g", cpus=2)._managed.options,
    "DockerOptions": lambda: DockerOptions(memory="2g", cpus=2),
    "BubblewrapOptions": lambda: BubblewrapOptions(memory="2g", cpus=2),
    "Docker": lambda: DockerCommandLineCodeExecutor(memory="2g", cpus=2).options,
    "bubblewrap": lambda: BubblewrapCommandLineCodeExecutor(memory="2g", cpus=2).options,
    "pool": lambda: SandboxPool(memory="2g", cpus=2).options,
    "pool of executors": lambda: ExecutorPool(memory="2g", cpus=2).executor(memory="2g").options,
    "pool with Limits": lambda: ExecutorPool(limits=Limits(memory="2g", cpus=2)).executor(memory="2g", cpus=2).options,
    "from a pool": lambda: AsyncSandbox(pool=SandboxPool(memory="2g", cpus=2), memory="2g", cpus=2)._managed.options,
    "texts": lambda: parse_options(DockerOptions, parse_texts(["memory=2g", "cpus=2"])),
    "command line": lambda: DockerOptions(**SandboxChoice(memory="2g", others=("cpus=2",)).options()),
    "component": lambda: (
        DockerCommandLineCodeExecutor.load_component(
            DockerCommandLineCodeExecutor(memory="2g", cpus=2).dump_component()
        ).options
    ),
}


def test_limits_can_be_given_by_name() -> None:
    for name, call in TWO_GB.items():
        with case(name):
            assert call().limits == Limits(memory="2g", cpus=2)


def test_limits_are_given_in_one_way() -> None:
    for make in (Sandbox, AsyncSandbox, DockerOptions, DockerCommandLineCodeExecutor, SandboxPool, ExecutorPool):
        with pytest.raises(ValueError, match=r"^memory= is a limit, and limits= has all of them: give one of the two$"):
            make(memory="2g", limits=Limits(memory="2g"))
        with pytest.raises(ValueError, match=r"^\w+\(cpus=…\): Input should be greater than 0$"):
            make(cpus=0)


@pytest.mark.parametrize("code", [42, None, b"1", Path("a.py"), ["1"]])
def test_run_says_what_it_takes(code: Any) -> None:
    message = rf"^code must be a string, such as 'print\(1\)', not .* \({type(code).__name__}\)$"
    box = Sandbox()
    for call in (box.run, lambda code: list(box.stream(code)), lambda code: asyncio.run(AsyncSandbox().run(code))):
        with pytest.raises(TypeError, match=message):
            call(code)
    box.stop()
    executor = DockerCommandLineCodeExecutor()
    with pytest.raises(TypeError, match=message):
        asyncio.run(executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken()))
    with pytest.raises(
        TypeError, match=r"^a block has `code` and `language`, such as CodeBlock\(code=…, language=…\); got 'p'$"
    ):
        asyncio.run(executor.execute_code_blocks("print(1)", CancellationToken()))  # type: ignore[arg-type]


def test_values_of_the_environment_are_never_shown() -> None:
    options = DockerOptions(environment={"KEY": "s3cr3t"})
    with pytest.raises(ValueError, match="NUL") as caught:
        parse_options(DockerOptions, {"environment": {"KEY": "s3cr3t\0"}, "timeout": 3})
    shown = [repr(options), str(options), str(options.model_dump()), options.model_dump_json(), str(caught.value)]
    assert "s3cr3t" not in "".join(shown)


def test_what_can_hold_a_secret_is_not_in_the_repr() -> None:
    options = DockerOptions(docker_host="ssh://user:s3cr3t@host", init_command="login s3cr3t")
    assert "s3cr3t" not in repr(options)


def test_every_option_is_described() -> None:
    for model in (DockerOptions, BubblewrapOptions):
        assert [name for name, field in model.model_fields.items() if not field.description] == []


def test_texts_of_a_command_line_become_arguments() -> None:
    texts = [
        "network=bridge",
        'limits={"memory": "2g"}',
        "preload=numpy",
        "preload=pandas",
        "timeout=3",
        "container_name=12",
    ]
    arguments = parse_texts([*texts, "read_only=false", 'languages={"wc": ["wc", "-c"]}', "environment=API_KEY"])
    assert arguments == {
        "network": "bridge",
        "limits": Limits(memory="2g"),
        "preload": ["numpy", "pandas"],
        "timeout": 3,
        "container_name": "12",
        "read_only": False,
        "languages": {"wc": ["wc", "-c"]},
        "environment": ["API_KEY"],
    }
    assert parse_options(DockerOptions, arguments).limits.memory == "2g"
    for wrong in ("network", "colour=red"):
        with pytest.raises(
            ValueError, match="is not NAME=VALUE with the name of an option: allow_domains, allow_pip, auto_remove"
        ):
            parse_texts([wrong])
    with pytest.raises(ValueError, match=r"with the name of an option; did you mean 'memory'\?$"):
        parse_texts(["memry=2g"])


# What somebody who adds an option writes is the class body; the rest puts it in the place of the real model.
PROGRAM = """
from typing import Annotated
from pydantic import Field
from codeact_sandbox.types import options

class BubblewrapOptions(options.BubblewrapOptions):
    dummy: Annotated[int, Field(description="An option that was added.")] = 3

options.BubblewrapOptions = options.OPTIONS["bubblewrap"] = BubblewrapOptions

import asyncio, inspect
from codeact_sandbox import AsyncSandbox
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor as Executor, ExecutorPool
from autogen_codeact.cli.mcp import sandbox_of
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_core.code_executor import CodeExecutor

assert inspect.signature(Executor).parameters["dummy"].default == 3
assert "dummy: An option that was added. Default 3." in Executor.__init__.__doc__
config = Executor(dummy=4).dump_component()
assert config.config["dummy"] == 4
assert CodeExecutor.load_component(config).sandbox.options.dummy == 4
assert AsyncSandbox("bubblewrap", dummy=5)._managed.options.dummy == 5
assert SandboxChoice("bubblewrap", others=("dummy=6",)).options()["dummy"] == 6
assert sandbox_of(SandboxChoice("bubblewrap", others=("dummy=9",)))._managed.options.dummy == 9
pool = ExecutorPool(backend="bubblewrap", dummy=7)
try:
    pool.executor(dummy=8)
except ValueError as error:
    assert "differ in dummy" in str(error)
else:
    raise AssertionError("it is not compared")
print("found everywhere")
"""


def test_an_option_is_added_in_one_place() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, cwd=Path("/"))
    assert (run.stdout, run.stderr) == ("found everywhere\n", "")


GIB = 1024**3


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 2 GiB."""
    monkeypatch.setattr(module, "machine_memory", lambda: 2 * GIB)


def test_the_default_is_a_quarter_of_the_machine_and_at_most_4_gib() -> None:
    for machine, memory in [(64, "4096m"), (16, "4096m"), (8, "2048m"), (1, "256m")]:
        with case(machine, memory):
            found = Limits(cpus=2).resolved(machine * GIB)
            assert (found.memory, found.cpus) == (memory, 2)


def test_an_invalid_limit_of_processor_time_is_refused() -> None:
    for value in [0, -1, float("inf"), float("nan"), "much"]:
        with case(value), pytest.raises(ValueError, match="cpu_seconds"):
            Limits(cpu_seconds=value)  # type: ignore[arg-type]


def test_a_chosen_limit_is_kept() -> None:
    limits = Limits(memory="9g")
    assert limits.resolved(GIB) is limits


@pytest.mark.usefixtures("small_machine")
def test_facts_say_the_default() -> None:
    facts = known_facts(DockerOptions())
    assert (facts.memory_bytes, facts.workspace_bytes) == (GIB // 2, GIB // 8)


@pytest.mark.usefixtures("small_machine")
@pytest.mark.parametrize("kind", [DockerCommandLineCodeExecutor, BubblewrapCommandLineCodeExecutor])
def test_a_config_does_not_contain_the_machines_memory(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    written = kind().dump_component()
    assert "memory" not in written.config["limits"]
    monkeypatch.setattr(module, "machine_memory", lambda: 8 * GIB)
    loaded = kind.load_component(written).sandbox.options.limits
    assert loaded == Limits()
    assert (loaded.memory_bytes, loaded.resolved().workspace) == (2 * GIB, "256m")


def test_the_memory_of_this_machine_is_at_most_what_there_is() -> None:
    with open("/proc/meminfo") as file:
        assert machine_memory() <= int(file.readline().split()[1]) * 1024


def test_an_engine_elsewhere_is_asked_once() -> None:
    asked: list[str] = []

    def info() -> dict[str, int]:
        asked.append("info")
        return {"MemTotal": 8 * GIB}

    client: Any = SimpleNamespace(base_url="http://192.0.2.1:2375", info=info)
    assert [engine.memory_of(client, "docker of a test") for _ in range(3)] == [8 * GIB] * 3
    assert asked == ["info"]
    local: Any = SimpleNamespace(base_url="http+docker://localhost", info=info)
    assert engine.memory_of(local, "docker of another test") is None
