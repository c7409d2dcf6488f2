"""The value of a block's last expression: itself if it is plain, and its text."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from autogen_codeact.executors import ExecutionResult
from autogen_codeact.runs.results import ResultRecord, StoredFile
from codeact_sandbox import AsyncSandbox
from codeact_sandbox.host.protocol import decode_value
from codeact_sandbox.runner.worker.values import encode

PLAIN = [
    0, -1, 2**200, True, 1.5, 1e300, 2 + 3j, "milk", "grüße 🎉\x00\n\"\\ud800", b"\x00\xff", [], (), {}, set(), frozenset({1}),
    [1, "a", None, (2, {3})], (1,), {1, 2}, {"a": 1, 2: [3], (4, 5): None}, {"tuple": [1]}, {"": {"dict": [[], []]}}, math.inf,
    [[[[[[[[[[[[[[[1]]]]]]]]]]]]]]], "x" * 60_000, list(range(5_000)),
]  # fmt: skip


@pytest.mark.parametrize("number", list(range(len(PLAIN))))
def test_plain_value_comes_back_with_its_types(number: Any) -> None:
    value = PLAIN[number]
    found = decode_value(encode(value))
    assert (repr(found), type(found)) == (repr(value), type(value))


class Text(str):
    """Not plain: a class of the code."""


def endless() -> list[object]:
    made: list[object] = []
    made.append(made)
    return made


def doubled() -> list[object]:
    made: list[object] = []
    for _ in range(15):
        made = [made] * 100
    return made


OTHERS = [
    object(), Text("x"), [Text("x")], Path("x"), range(3), endless(), doubled(), "x" * 70_000, list(range(10**6)), 2**9000,
    "\ud800", {"a": ["\udfff"]}, "ü" * 40_000, {1: print}, [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]],
]  # fmt: skip


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: type(value).__name__)
def test_any_other_value_is_not_sent(value: Any) -> None:
    assert encode(value) is None


HOSTILE = {
    "nested": "[" * 60_000,
    "nested objects": '{"tuple":[' * 6_000 + "]}" * 6_000,
    "long number": "9" * 60_000,
    "long float": f"1{'0' * 60_000}.5e-60000x",
    "no JSON": "{'a': 1}",
    "other kind": '{"object": []}',
    "class": '{"__reduce__": ["os.system", ["true"]]}',
    "two kinds": '{"tuple": [], "set": []}',
    "no kind": "{}",
    "unhashable": '{"set": [[1]]}',
    "keys of other number": '{"dict": [[1], []]}',
    "tuple of text": '{"tuple": "abc"}',
    "lone surrogate": '"\\ud800"',
    "raw surrogate": '"\ud800"',
    "no complex": '{"complex": ["1", "2"]}',
    "large float": '{"complex": [1%s, 0]}' % ("0" * 400),
    "too long": json.dumps("x" * 65_536),
    "no text": 5,
}


@pytest.mark.parametrize(("name", "value"), list(HOSTILE.items()))
def test_malformed_value_is_none(name: Any, value: Any) -> None:
    assert decode_value(value) is None


CELLS = {
    "min({'tea': 4.5, 'milk': 1.2})": ("milk", "'milk'"),
    "{'a': (1, 2.5), 'b': {3}}": ({"a": (1, 2.5), "b": {3}}, "{'a': (1, 2.5), 'b': {3}}"),
    "import numpy as np; np.float64(0.5)": (0.5, "np.float64(0.5)"),
    "[np.int64(1), np.bool_(True), np.str_('a')]": ([1, True, "a"], "[np.int64(1), np.True_, np.str_('a')]"),
    "np.datetime64('2026-01-01')": (None, "np.datetime64('2026-01-01')"),
    "np.arange(3)": (None, "array([0, 1, 2])"),
    "object": (None, "object"),
    "None": (None, None),
    "x = 1": (None, None),
    "import json; json.dumps = json.JSONEncoder.encode = None; 41 + 1": (42, "42"),
}


async def test_value_of_a_block(backend: Any) -> None:
    async with AsyncSandbox(backend, timeout=60) as box:
        for code, (value, text) in CELLS.items():
            if "np." in code and backend == "bubblewrap":
                continue  # this machine's Python need not have numpy
            result = await box.run(code)
            assert (result.value, type(result.value), result.value_repr) == (value, type(value), text), (code, result)


def test_recorded_result_has_the_value_with_its_types() -> None:
    result = ExecutionResult(0, "", value={"a": (1, b"x"), 2: {3}}, value_repr="…")
    record = ResultRecord.of(result, keep=lambda _: StoredFile(sha256=None, size=0), keep_file=lambda _: None)
    text = record.model_dump_json()
    assert ResultRecord.model_validate_json(text).result(lambda _: b"") == result
    foreign = json.loads(text) | {"value": {"__reduce__": []}}
    assert ResultRecord.model_validate(foreign).result(lambda _: b"").value is None  # type: ignore[attr-defined]
