"""The options model, one place where an option is written down; and the default of the memory limit."""

import os
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.executors import (
    BubblewrapCommandLineCodeExecutor,
    DockerCommandLineCodeExecutor,
    ExecutorPool,
)
from codeact_sandbox import AsyncSandbox, Sandbox, SandboxPool
from codeact_sandbox.backends.docker import engine
from codeact_sandbox.types.limits import Limits
from codeact_sandbox.types.option_parsing import options_of, parse_options, parse_texts
from codeact_sandbox.types.options import OPTIONS, BubblewrapOptions, DockerOptions, SandboxOptions

NO_NETWORK = (
    "is not a Docker network: give 'none', 'bridge' (which reaches the internet), or the name of one of your own"
)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"colour": "red"}, TypeError, "DockerOptions() has no option 'colour'"),
        ({"mode": "repl"}, ValueError, "mode must be 'process' or 'session', not 'repl'"),
        ({"timeout": 0}, ValueError, "Timeout must be greater than or equal to 1 ms (timeout=0.001), not 0 s"),
        ({"timeout": "10"}, ValueError, "timeout must be a number of seconds, not '10'"),
        (
            {"limits": "1g"},
            TypeError,
            "limits must be Limits(memory='512m', ...), not '1g'; each limit is also an option by its name: memory='512m'",
        ),
        ({"network": True}, ValueError, f"network=True {NO_NETWORK}"),
        ({"network": ""}, ValueError, f"network='' {NO_NETWORK}"),
        ({"preload": "numpy"}, TypeError, "preload is one string: give a list, ['numpy']"),
        ({"data": {"a": "b"}}, TypeError, "data must be a list of names, not {'a': 'b'}"),
        ({"memory": [1]}, ValueError, "DockerOptions(memory=…): must be a string"),
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
    ],
)
def test_an_error_says_which_option_is_wrong(options: Any, error: Any, words: Any) -> None:
    with pytest.raises(error) as caught:
        parse_options(DockerOptions, options)
    assert str(caught.value) == words


TWO_GB: dict[str, Callable[[], SandboxOptions]] = {
    "Sandbox": lambda: Sandbox(memory="2g", cpus=2)._inner.options,
    "AsyncSandbox": lambda: AsyncSandbox("bubblewrap", memory="2g", cpus=2).options,
    "DockerOptions": lambda: DockerOptions(memory="2g", cpus=2),
    "BubblewrapOptions": lambda: BubblewrapOptions(memory="2g", cpus=2),
    "Docker": lambda: DockerCommandLineCodeExecutor(memory="2g", cpus=2).options,
    "bubblewrap": lambda: BubblewrapCommandLineCodeExecutor(memory="2g", cpus=2).options,
    "pool": lambda: SandboxPool(memory="2g", cpus=2).options,
    "pool of executors": lambda: ExecutorPool(memory="2g", cpus=2).executor(memory="2g").options,
    "pool with Limits": lambda: ExecutorPool(limits=Limits(memory="2g", cpus=2)).executor(memory="2g", cpus=2).options,
    "from a pool": lambda: AsyncSandbox(pool=SandboxPool(memory="2g", cpus=2), memory="2g", cpus=2).options,
    "texts": lambda: parse_options(DockerOptions, parse_texts(["memory=2g", "cpus=2"])),
    "command line": lambda: DockerOptions(**SandboxChoice(others=("memory=2g", "cpus=2")).options()),
    "component": lambda: (
        DockerCommandLineCodeExecutor.load_component(
            DockerCommandLineCodeExecutor(memory="2g", cpus=2).dump_component()
        ).options
    ),
}


@pytest.mark.parametrize(("name", "call"), list(TWO_GB.items()))
def test_limits_can_be_given_by_name(name: Any, call: Any) -> None:
    assert call().limits == Limits(memory="2g", cpus=2)


def test_limits_are_given_in_one_way() -> None:
    for make in (Sandbox, AsyncSandbox, DockerOptions, DockerCommandLineCodeExecutor, SandboxPool, ExecutorPool):
        with pytest.raises(ValueError, match=r"^memory= is a limit, and limits= has all of them: give one of the two$"):
            make(memory="2g", limits=Limits(memory="2g"))
        with pytest.raises(ValueError, match=r"^\w+\(cpus=…\): must be greater than 0$"):
            make(cpus=0)


def test_values_of_the_environment_are_never_shown() -> None:
    options = DockerOptions(environment={"KEY": "s3cr3t"})
    with pytest.raises(ValueError, match="NUL") as caught:
        parse_options(DockerOptions, {"environment": {"KEY": "s3cr3t\0"}, "timeout": 3})
    shown = [repr(options), str(options), str(options.model_dump()), options.model_dump_json(), str(caught.value)]
    assert "s3cr3t" not in "".join(shown)


def test_texts_of_a_command_line_become_arguments() -> None:
    texts = [
        "network=bridge",
        'limits={"memory": "2g"}',
        "preload=numpy",
        "preload=pandas",
        "timeout=3",
        "container_name=12",
    ]
    arguments = parse_texts([*texts, "allow_pip=false", "environment=API_KEY"])
    assert arguments == {
        "network": "bridge",
        "limits": Limits(memory="2g"),
        "preload": ["numpy", "pandas"],
        "timeout": 3,
        "container_name": "12",
        "allow_pip": False,
        "environment": ["API_KEY"],
    }
    assert parse_options(DockerOptions, arguments).limits.memory == "2g"
    for wrong in ("network", "colour=red"):
        with pytest.raises(
            ValueError, match="is not NAME=VALUE with the name of an option: allow_domains, allow_pip, bind_dir"
        ):
            parse_texts([wrong])
    with pytest.raises(ValueError, match=r"with the name of an option; did you mean 'memory'\?$"):
        parse_texts(["memry=2g"])


GIB = 1024**3


@pytest.mark.parametrize(("machine", "memory"), [(64, "4096m"), (16, "4096m"), (8, "2048m"), (1, "256m")])
def test_the_default_is_a_quarter_of_the_machine_and_at_most_4_gib(machine: Any, memory: Any) -> None:
    found = Limits(cpus=2).resolved(machine * GIB)
    assert (found.memory, found.cpus) == (memory, 2)


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


def test_more_memory_than_the_machine_has_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    limits = Limits(memory="101g")
    assert limits.resolved(100 * 1024**3) == limits
    assert caplog.messages == [
        "memory=101g is more than the machine's 102400 MiB, so nothing limits the memory of code"
    ]


VALUES = [
    3,
    -1,
    1.5,
    "x",
    "",
    None,
    True,
    ["x"],
    [3],
    {"a": 1},
    {3: 4},
    object(),
    b"x",
    {"x"},
    [None],
    [["a"]],
    {"a": None},
]
FOREIGN = re.compile(
    "json-or-python|Input should|validator|has no attribute|object is not|expected str, bytes|unhashable|NoneType"
)


def refusals(backend):
    """Each option with each value that it refuses, and the message."""
    for name in {*OPTIONS[backend].model_fields, *Limits.model_fields}:
        for value in VALUES:
            try:
                options_of(backend, {name: value}, Sandbox)
            except (TypeError, ValueError) as error:
                yield name, value, str(error)


@pytest.mark.parametrize("backend", OPTIONS)
def test_wrong_values_are_refused_in_words_that_name_the_option(backend):
    found = list(refusals(backend))
    assert len(found) > 300
    assert [each for each in found if each[0] not in each[2] or FOREIGN.search(each[2])] == []


@pytest.mark.parametrize("name", ["work_dir", "bind_dir", "snapshot", "data", "skills"])
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "='' is not a path: give one such as 'project', or leave "),
        ("~/project", "='~/project': only a shell expands `~`; give os.path.expanduser('~/project')"),
    ],
)
def test_paths_that_mean_something_else_are_refused(name, path, message):
    with pytest.raises(ValueError, match=f"^{name}{re.escape(message)}"):
        Sandbox("bubblewrap", **{name: [path] if name in ("data", "skills") else path})


def test_home_folder_is_expanded_in_text_of_a_command_line():
    assert parse_texts(["work_dir=~/project", "data=~/data"]) == {
        "work_dir": os.path.expanduser("~/project"),
        "data": [os.path.expanduser("~/data")],
    }


def test_pool_of_another_type_is_refused():
    with pytest.raises(TypeError, match=r"^pool must be a SandboxPool, not 1 \(int\)$"):
        Sandbox(pool=1)
