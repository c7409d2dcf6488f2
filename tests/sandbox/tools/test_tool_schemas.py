"""Arguments checked against the JSON schema of a third party's tool."""

import math
import time
from typing import Any

import pytest

from codeact_sandbox.tools.json_schema import ArgumentSchema, plain_schema

NEITHER = "a: fits none of its types: a: 1 is not of type 'string'; or a: 1 is not of type 'null'"
NONE_OF_BOTH = "a: fits none of its types: a: 1 is not of type 'null'; or a: 1 is less than the minimum of 3"


async def problems(schema: dict[str, Any], value: Any, **whole: Any) -> list[str]:
    """What is wrong with the argument `a`."""
    return await ArgumentSchema({"properties": {"a": schema}, **whole}, "`t` of a test").problems({"a": value})


@pytest.mark.parametrize("dialect", [None, "http://json-schema.org/draft-07/schema#"])
@pytest.mark.parametrize(
    ("schema", "fits", "wrong", "words"),
    [
        ({"exclusiveMinimum": 1}, 2, 1, "a: 1 is less than or equal to the minimum of 1"),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, 2, 0, "a: 0 is less than the minimum of 1"),
        ({"type": "string", "nullable": True}, None, 1, NEITHER),
        ({"type": ["integer", "null"]}, None, "x", "a: 'x' is not of type 'integer', 'null'"),
        ({"type": "integer"}, 2.0, True, "a: True is not of type 'integer'"),
        ({"type": "number"}, 2, math.nan, "a: nan is not of type 'number'"),
        ({"items": {"type": "integer"}}, [1], ["x"], "a[0]: 'x' is not of type 'integer'"),
        ({"anyOf": [{"type": "null"}, {"minimum": 3}]}, 3, 1, NONE_OF_BOTH),
        ({"properties": {"b": {"minLength": 2}}}, {"b": "xx"}, {"b": "x"}, "a.b: 'x' is too short"),
        ({"properties": {"format": {"type": "string"}}}, {"format": "x"}, {"format": 1}, "a.format: 1 is not of type 'string'"),
    ],
)  # fmt: skip
async def test_each_schema_dialect_gives_the_same_answer(
    dialect: str | None, schema: Any, fits: Any, wrong: Any, words: str
) -> None:
    whole = {"$schema": dialect} if dialect else {}
    assert await problems(schema, fits, **whole) == []
    assert await problems(schema, wrong, **whole) == [words]


@pytest.mark.parametrize("reference", ["http://127.0.0.1:9/x.json", "file:///etc/passwd", "other.json#/a"])
async def test_external_references_are_not_fetched_and_not_checked(reference: str) -> None:
    assert await problems({"$ref": reference}, 3) == []
    assert await problems({"anyOf": [{"$ref": reference}, {"type": "null"}]}, 3) == []


async def test_patterns_are_left_to_the_tool() -> None:
    schema = {"type": "string", "pattern": "^(a+)+$"}
    began = time.process_time()
    assert await problems(schema, "a" * 100 + "b") == []
    named = {"patternProperties": {"^(a+)+$": {"type": "null"}}, "additionalProperties": False}
    assert await problems(named, {"a" * 100 + "b": 1}) == []
    assert time.process_time() - began < 5


async def test_long_arguments_are_checked_within_a_time() -> None:
    numbers = {"type": "array", "items": {"type": "integer", "minimum": 0}}
    assert await problems(numbers, [*range(5_000), "x"]) == ["a[5000]: 'x' is not of type 'integer'"]
    said = ["it would take too long to check the arguments against the tool's JSON schema: pass smaller arguments"]
    endless = {"anyOf": [{"$ref": "#/$defs/E"}, {"$ref": "#/$defs/E"}], "$defs": {}}
    doubled = {f"D{n}": {"allOf": [{"$ref": f"#/$defs/D{n + 1}"}] * 2} for n in range(50)} | {"D50": {}}
    began = time.monotonic()
    assert await problems({"$ref": "#/$defs/D0"}, 1, **{"$defs": doubled}) == said
    assert await problems({"$ref": "#/$defs/E"}, 1, **{"$defs": {"E": endless}}) == said
    assert time.monotonic() - began < 20
    assert await problems({"type": "integer"}, "x" * 2_000_000) == said
    long = await problems({"type": "integer"}, "x" * 1_000_000)
    assert len(long[0]) < 400


def test_values_that_are_not_json_are_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"items": deep}
    endless: dict[str, Any] = {}
    endless["items"] = endless
    for schema in (deep, endless, {"default": {1, 2}}):
        with pytest.raises(
            ValueError, match=r"^The JSON schema of `t` can't be used: .*\. Make it smaller, or correct it"
        ):
            plain_schema(schema, "`t`")
