"""K6. Displays whose JSON takes long to parse: nothing of them is parsed until somebody asks for the value."""

import json
from pathlib import Path
from typing import Any

from autogen_codeact.runs.folder import FileStore, result_record
from autogen_codeact.runs.redaction import Redaction
from codeact_sandbox.types.displays import SMALL_JSON, Display, Forms

from .lag import MOST_EXCESS_S, median_excess
from .oracles import MIB
from .subject import Subject, each_engine, one_kind

JSON = "application/json"
SHAPES = {
    "floats": "[i * 1.2345678901e-5 for i in range(180_000)]",
    "keys": "{str(i): i for i in range(220_000)}",
    "long integers": "[10 ** 4200 + i for i in range(900)]",
    "a long string": "['\\u20ac' * 600_000]",
    "nested": "[eval('[' * 90 + ']' * 90) for i in range(800)]",
    "short strings": "['\\\\\"' + str(i) for i in range(200_000)]",
}
SHOW = """
    import sys
    from IPython.display import display
    sys.set_int_max_str_digits(0)
    value = {shape}
    for _ in range(4):
        display({{"text/plain": "a display", "application/json": value}}, raw=True)
"""
GARBAGE = """
    from IPython.display import display
    import sys
    mime = sys.modules["codeact_runner.worker.displays"]
    as_bytes = mime._as_bytes
    mime._as_bytes = lambda name, value: value.encode() if name == "text/plain" else b"\\xff" * 3_900_000
    for _ in range(4):
        display({"text/plain": "a display", "text/html": ""}, raw=True)
    mime._as_bytes = as_bytes
"""


@each_engine
async def test_k6_json_of_any_shape_is_not_parsed_on_arrival(subject: Subject) -> None:
    await subject.start(memory="400m", output=MIB)
    subject.kept = 128 * MIB
    for name, shape in SHAPES.items():
        code = SHOW.format(shape=shape)

        async def load(name: str = name, code: str = code) -> None:
            result = await subject.run(code, timeout=40)
            assert result.outcome == "ok", (name, result.output)
            assert [list(each.data) for each in result.displays] == [["text/plain", JSON]] * 4, name
            assert all(isinstance(each.forms[JSON], bytes) for each in result.displays), name

        assert await median_excess(load) < MOST_EXCESS_S, name


@one_kind
async def test_k6_megabytes_that_are_not_text_stall_nothing(subject: Subject) -> None:
    await subject.start(memory="400m", output=MIB)
    subject.kept = 128 * MIB

    async def load() -> None:
        result = await subject.run(GARBAGE, timeout=40)
        assert [len(each.data["text/html"]) for each in result.displays] == [3_900_000] * 4, result.output

    assert await median_excess(load) < MOST_EXCESS_S


@one_kind
async def test_k6_large_json_is_kept_whole_in_results_files_and_logs(subject: Subject, tmp_path: Path) -> None:
    await subject.start(memory="400m", output=MIB)
    result = await subject.run(
        "from IPython.display import JSON, display\ndisplay(JSON({'large': list(range(100_000))}), JSON({'small': [1]}))"
    )
    values: list[Any] = [{"large": list(range(100_000))}, {"small": [1]}]
    assert [each.data[JSON] for each in result.displays] == values
    assert [each.path is not None and json.loads(each.path.read_text()) for each in result.displays] == values
    record = result_record(result, FileStore(tmp_path, Redaction().content))
    assert [list(each.data) for each in record.displays] == [["text/plain"], ["text/plain", JSON]]
    assert len(record.model_dump_json()) < SMALL_JSON
    again = record.result(lambda file: (tmp_path / "files" / str(file.sha256)).read_bytes())
    assert [each.data[JSON] for each in again.displays] == values  # type: ignore[attr-defined]


def test_k6_json_that_is_none_or_has_too_many_levels_is_none_when_it_is_looked_up() -> None:
    for text in (b"[" * 200 + b"]" * 200, b"{", b"\xff", b"9" * 5000, b'{"a": ' * 70_000):
        shown = Display("display-1", Forms({JSON: text, "text/plain": "x"}))
        assert dict(shown.data) == {JSON: None, "text/plain": "x"}
    assert Display("d", Forms({JSON: b'{"a": [1]}'})) == Display("d", {JSON: {"a": [1]}})
