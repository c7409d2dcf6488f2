"""Real input: recorded calls and answers of tools, made and given again through the real sandbox."""

import ast
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from autogen_core.tools import ToolSchema

from autogen_codeact.executors import DockerCommandLineCodeExecutor
from tests.executors.schema_workbench import SchemaWorkbench
from tests.sandbox.sandboxes import run

pytestmark = pytest.mark.usefixtures("docker_engine", "sandbox_image")

JSON_TYPES = {"dict": "object", "float": "number"}
TOOL_SETS = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a file with one on each line."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return [json.loads(line) for line in text.splitlines()]


def as_json_schema(recorded: Any) -> Any:
    """The recorded schemas name types as Python does."""
    if isinstance(recorded, list):
        return [as_json_schema(each) for each in recorded]
    if not isinstance(recorded, dict):
        return recorded
    schema = {key: as_json_schema(value) for key, value in recorded.items()}
    if isinstance(kind := schema.get("type"), str):
        schema["type"] = JSON_TYPES.get(kind, kind)
    return schema


def meant(statement: str, schemas: Mapping[str, ToolSchema]) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a recorded call, those by position under the names that the schema gives them."""
    call = ast.parse(statement, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    names = list(schemas[call.func.id]["parameters"]["properties"])
    given = {name: ast.literal_eval(value) for name, value in zip(names, call.args, strict=False)}
    given |= {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    return call.func.id, given


# It names a ticket by a word where the schema has a number, so the host refuses it, with its arguments in the call log.
AGAINST_ITS_SCHEMA = ("close_ticket", {"ticket_id": "ticket_001"})


@pytest.mark.timeout(180)
async def test_every_recorded_call_reaches_the_host_as_it_was_recorded(shared_data: Path) -> None:
    rows = read_rows(shared_data / "bfcl/BFCL_v4_multi_turn_base.jsonl")
    tasks = read_rows(shared_data / "bfcl/answer_BFCL_v4_multi_turn_base.jsonl")
    assert {each for row in rows for each in row["involved_classes"]} == TOOL_SETS.keys()
    schemas = {
        each["name"]: ToolSchema(
            name=each["name"], description=each["description"], parameters=as_json_schema(each["parameters"])
        )
        for name in TOOL_SETS.values()
        for each in read_rows(shared_data / f"bfcl/func_doc/{name}.json")
    }
    workbench, reached, expected, refused = (
        SchemaWorkbench(list(schemas.values()), lambda name, _: f"did {name}"),
        0,
        [],
        [],
    )
    async with DockerCommandLineCodeExecutor(mode="session", checkpoint=False, tools=[workbench]) as executor:
        for task in tasks:
            statements = [statement for turn in task["ground_truth"] for statement in turn]
            calls = [meant(statement, schemas) for statement in statements]
            attempts = [f"try: print({statement})\nexcept TypeError as error: print(error)" for statement in statements]
            result = await run(executor, "\n".join(attempts))
            assert [(call.name, call.arguments) for call in result.tool_calls] == calls, task["id"]
            reached += len(result.tool_calls)
            answers = [f"did {call.name}" if call.outcome == "ok" else call.error.message for call in result.tool_calls]  # type: ignore[union-attr]
            assert result.output.splitlines() == answers, task["id"]
            refused += [(call.name, call.arguments) for call in result.tool_calls if call.outcome != "ok"]
            expected += calls
    print(f"\nbfcl: {reached} of {len(expected)} calls of {len(tasks)} tasks reached the host; {len(schemas)} tools")
    assert (len(tasks), reached) == (200, 1142)
    assert refused == [AGAINST_ITS_SCHEMA]
    assert workbench.calls == [call for call in expected if call != AGAINST_ITS_SCHEMA]
