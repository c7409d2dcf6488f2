"""Environment variables reach the sandbox, and their values reach nothing else."""

import json
import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeact_sandbox.types.environment import dump, interpreter_variables, parse_environment, resolve
from tests.cases import case

HOST = {"API_KEY": "sk-secret", "EMPTY": "", "PATH": "/bin"}


def test_the_four_forms():
    parsed = parse_environment(
        {"MODE": "fast", "KEY": "${API_KEY}", "OR": "${NOT_THERE:-a:-b}\n}", "EMPTY": "${EMPTY:-full}", "NONE": ""}
    )
    assert resolve(parsed, HOST) == {"MODE": "fast", "KEY": "sk-secret", "OR": "a:-b}\n", "EMPTY": "full", "NONE": ""}
    assert resolve(parse_environment(["API_KEY", "PATH"]), HOST) == {"API_KEY": "sk-secret", "PATH": "/bin"}


def test_an_empty_variable_is_a_value_unless_there_is_a_default():
    assert resolve(parse_environment({"A": "${EMPTY}", "B": "${EMPTY:-x}", "C": "${NO:-}"}), HOST) == {
        "A": "",
        "B": "x",
        "C": "",
    }


def test_the_host_is_looked_up_at_start_not_before(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CODEACT_TEST_LATE", raising=False)
    parsed = parse_environment({"LATE": "${CODEACT_TEST_LATE}"})
    monkeypatch.setenv("CODEACT_TEST_LATE", "now")
    assert resolve(parsed) == {"LATE": "now"}


def test_every_missing_variable_is_named_with_what_to_do():
    parsed = parse_environment({"A": "${FIRST}", "B": "${API_KEY}", "C": "${SECOND}"})
    with pytest.raises(ValueError, match=r"not set on this host: FIRST, SECOND\. Set them \(`export FIRST=") as caught:
        resolve(parsed, HOST)
    assert "sk-secret" not in str(caught.value)


def test_dump_has_references_only_and_loads_again():
    parsed = parse_environment({"MODE": "s3cret-a", "KEY": "${API_KEY}", "OR": "${OTHER:-s3cret-b}"})
    dumped = dump(parsed)
    assert dumped == {"MODE": "${MODE}", "KEY": "${API_KEY}", "OR": "${OTHER}"}
    again = parse_environment(json.loads(json.dumps(dumped)))
    assert dump(again) == dumped
    with pytest.raises(ValueError, match="not set on this host: MODE, OTHER"):
        resolve(again, HOST)
    assert resolve(again, HOST | {"MODE": "x", "OTHER": "y"}) == {"MODE": "x", "KEY": "sk-secret", "OR": "y"}
    assert dump(parse_environment(["API_KEY"])) == {"API_KEY": "${API_KEY}"}


@given(
    st.text(min_size=4, alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0${}")).map(
        "s3cret".__add__
    )
)
def test_no_value_is_ever_shown(value: str):
    parsed = parse_environment({"A": value, "B": f"${{NO:-{value}}}"})
    shown = repr(parsed) + str(parsed["A"]) + f"{parsed['B']}" + json.dumps(dump(parsed))
    assert "s3cret" not in shown
    assert resolve(parsed, {}) == {"A": value, "B": value}


@pytest.mark.parametrize(
    "value",
    [
        "s3cret\0",
        "s3cret${X}",
        "${X}s3cret",
        "${s3cret-x}",
        "${X-s3cret}",
        "${X:?s3cret}",
        "${}s3cret",
        "s3cret\udcff",
    ],
)
def test_a_bad_value_is_refused_and_not_shown(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^The value of NAME ") as caught:
        parse_environment({"NAME": value})
    assert "s3cret" not in "".join(traceback.format_exception_only(caught.value))
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A=B", "Ä", "A\n", "A\0", "BASH_FUNC_x%%", 3, None])
def test_bad_names(name: Any) -> None:
    for environment in ({"OK": "", name: "x"}, ["OK", name]):
        with pytest.raises(ValueError, match=r"Entry 2 of `environment` \(--env\) is not the name of"):
            parse_environment(environment)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_X", "GCONV_PATH", "GLIBC_TUNABLES", "CODEACT_X"])
def test_variables_that_a_running_interpreter_ignores_are_refused(name: Any) -> None:
    for environment in ({name: "x"}, {name: "${X}"}, [name]):
        with pytest.raises(ValueError, match=f"{name} can't be set for the whole sandbox: ."):
            parse_environment(environment)


GOOD = {
    "PYTHONHASHSEED": ["random", "0", "4294967295", ""],
    "PYTHONUTF8": ["0", "1", ""],
    "PYTHONOPTIMIZE": ["0", "2", ""],
    "PYTHONINTMAXSTRDIGITS": ["0", "640", "2147483647"],
}
BAD = {
    "PYTHONHASHSEED": ["s3cret", "-1", "4294967296", "0x1", "1 ", "\u0663", "9" * 5000],
    "PYTHONUTF8": ["s3cret", "2", "utf8"],
    "PYTHONOPTIMIZE": ["s3cret", "3", "/workspace"],
    "PYTHONINTMAXSTRDIGITS": ["s3cret", "639", "1"],
}


def test_variables_for_the_start_of_the_interpreter_are_selected() -> None:
    for name, value in [(name, value) for name, values in GOOD.items() for value in values]:
        with case(name, value):
            values = resolve(parse_environment({name: value, "PYTHONPATH": "/a", "KEY": "x"}), {})
            assert interpreter_variables(values) == ({name: value} if value else {})


def test_invalid_values_for_the_interpreter_are_refused_and_not_shown() -> None:
    for name, value in [(name, value) for name, values in BAD.items() for value in values]:
        with case(name, value):
            with pytest.raises(ValueError, match=f"^Python can't start with this value of {name}; give ") as caught:
                parse_environment({name: value})
            assert "s3cret" not in str(caught.value)
            # By way of the host it is known at the start only, and by the host's name.
            for reference in ("${OTHER}", "${NONE:-" + value + "}"):
                parsed = parse_environment({name: reference})
                with pytest.raises(ValueError, match=r"^Python can't start with this value of (OTHER|NONE); give "):
                    resolve(parsed, {"OTHER": value})


def test_too_large_variables_are_refused():
    with pytest.raises(
        ValueError, match=r"^The value of LONG has 131,072 bytes, more than Linux can give to a program"
    ):
        parse_environment({"LONG": "x" * 131_072})
    assert resolve(parse_environment({"LONG": "x" * 131_066}), {})
    many = parse_environment({f"A{number}": "x" * 100_000 for number in range(11)})
    with pytest.raises(ValueError, match=r"take 1,100,034 bytes together, and 1,048,576 at most can be set"):
        resolve(many, {})


def test_a_host_value_that_is_not_text():
    with pytest.raises(ValueError, match="value of RAW is not valid UTF-8") as caught:
        resolve(parse_environment(["RAW"]), {"RAW": "s3cret\udcff"})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "why"), [("API_KEY", "is one string"), ({"A": 1}, "not int"), ({"A": None}, "not None")]
)
def test_wrong_types(environment: Any, why: Any) -> None:
    with pytest.raises(TypeError, match=why):
        parse_environment(environment)  # type: ignore[arg-type]


def test_a_key_passed_instead_of_its_name_is_not_shown():
    with pytest.raises(ValueError, match="Entry 1") as caught:
        parse_environment(["sk-s3cret"])
    assert "s3cret" not in str(caught.value)
