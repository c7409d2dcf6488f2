"""Arguments checked against the JSON schema of a third party's tool."""

import logging
import math
import time
from typing import Any

import pytest

from codeact_sandbox.tools.json_schema import ArgumentSchema, plain_schema
from tests.cases import case

NONE_OF_BOTH = "a: fits none of its types: a: 1 is not of type 'null'; or a: 1 is less than the minimum of 3"


async def problems(schema: dict[str, Any], value: Any, **whole: Any) -> list[str]:
    """What is wrong with the argument `a`."""
    return await ArgumentSchema({"properties": {"a": schema}, **whole}, "`t` of a test").problems({"a": value})


CASES: list[tuple[Any, Any, dict[Any, str]]] = [
    ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, 2, {1: "a: 1 is less than or equal to the minimum of 1"}),
    ({"type": "integer", "minimum": 1, "exclusiveMinimum": False}, 1, {0: "a: 0 is less than the minimum of 1"}),
    ({"type": "integer", "maximum": 9, "exclusiveMaximum": True}, 8, {9: "a: 9 is greater than or equal to the maximum of 9"}),
    ({"exclusiveMinimum": 1}, 2, {1: "a: 1 is less than or equal to the minimum of 1"}),
    ({"type": "string", "nullable": True}, None, {1: "a: 1 is not of type 'string', 'null'"}),
    ({"enum": ["x"], "type": "string", "nullable": True}, None, {"y": "a: 'y' is not one of ['x', None]"}),
    ({"allOf": [{"type": "string"}], "nullable": True}, None, {}),
    ({"type": ["integer", "null"]}, None, {"x": "a: 'x' is not of type 'integer', 'null'"}),
    ({"type": "integer"}, 2.0, {True: "a: True is not of type 'integer'"}),
    ({"type": "number"}, 2, {math.nan: "a: nan is not of type 'number'", math.inf: "a: inf is not of type 'number'"}),
    ({"items": {"type": "integer"}}, [1], {("x",): "a[0]: 'x' is not of type 'integer'"}),
    ({"uniqueItems": True}, [{"b": 1}, {"b": 2}], {("x", "x"): "a: must hold each item once"}),
    ({"anyOf": [{"type": "null"}, {"minimum": 3}]}, 3, {1: NONE_OF_BOTH}),
    ({"properties": {"b": {"minLength": 2}}, "required": ["c"]}, {"b": "xx", "c": 1}, {}),
    ({"properties": {"pattern": {"type": "string"}}}, {"pattern": "x"}, {}),
]  # fmt: skip


async def test_each_schema_dialect_gives_the_same_answer() -> None:
    for dialect in (None, "http://json-schema.org/draft-07/schema#"):
        whole = {"$schema": dialect} if dialect else {}
        for schema, fits, others in CASES:
            with case(schema, dialect):
                assert await problems(schema, fits, **whole) == []
                for value, words in others.items():
                    given = list(value) if isinstance(value, tuple) else value
                    assert await problems(schema, given, **whole) == [words]


async def test_draft_4_is_chosen_by_its_name() -> None:
    whole = {"$schema": "http://json-schema.org/draft-04/schema#", "definitions": {"N": {"minimum": 1}}}
    assert await problems({"$ref": "#/definitions/N"}, 0, **whole) == ["a: 0 is less than the minimum of 1"]
    assert await problems({"minimum": 1, "exclusiveMinimum": True}, 2, **whole) == []
    assert len(await problems({"minimum": 1, "exclusiveMinimum": True}, 1, **whole)) == 1


@pytest.mark.parametrize("reference", ["http://127.0.0.1:9/x.json", "file:///etc/passwd", "other.json#/a", "#/$defs/B"])
async def test_external_references_are_not_fetched_and_not_checked(reference, caplog):
    with caplog.at_level(logging.WARNING, "codeact_sandbox"):
        assert await problems({"$ref": reference}, 3) == []
    assert caplog.messages == [
        f"the JSON schema of `t` of a test refers to definitions outside it ({reference!r}): these arguments are not checked"
    ]


async def test_patterns_are_left_to_the_tool() -> None:
    schema = {"type": "string", "pattern": "^(a+)+$"}
    began = time.process_time()
    assert await problems(schema, "a" * 100 + "b") == []
    named = {"patternProperties": {"^(a+)+$": {"type": "null"}}, "additionalProperties": False}
    assert await problems(named, {"a" * 100 + "b": 1}) == []
    assert time.process_time() - began < 5


async def test_long_arguments_are_checked_within_bounds() -> None:
    numbers = {"type": "array", "items": {"type": "integer", "minimum": 0}}
    assert await problems(numbers, list(range(50_000))) == []
    assert await problems(numbers, [*range(50_000), "x"]) == ["a[50000]: 'x' is not of type 'integer'"]
    said = ["it would take too long to check the arguments against the tool's JSON schema: pass smaller arguments"]
    assert await problems({"items": {"enum": list(range(1000))}}, [-1.5, 999] * 50_000) != []
    assert await problems({"items": {"enum": list(range(1000))}}, [999] * 100_000) == said
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


async def test_odd_identifiers_and_anchors_cost_little() -> None:
    began = time.process_time()
    many = {"properties": {f"p{n}": {"$ref": f"#a{n}"} for n in range(2000)}}
    anchors = {"$defs": {f"d{n}": {"$anchor": f"a{n}", "type": "string"} for n in range(2000)}}
    checked = ArgumentSchema({**many, **anchors}, "`t` of a test")
    assert await checked.problems({"p7": 1}) == ["p7: 1 is not of type 'string'"]
    assert time.process_time() - began < 10
    with pytest.raises(ValueError, match="The JSON schema of `t` is not valid"):
        ArgumentSchema({"$id": "http://[", "$defs": {"a": {"$id": "x"}}, "properties": {}}, "`t`")
