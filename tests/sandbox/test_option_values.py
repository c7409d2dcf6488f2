"""Options with values of any type: each error names the option and says what it takes, in no library's words."""

import os
import re

import pytest

from codeact_sandbox import Sandbox
from codeact_sandbox.types.limits import Limits
from codeact_sandbox.types.option_parsing import options_of, parse_texts
from codeact_sandbox.types.options import OPTIONS

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
