"""What code in a sandbox or a model chooses does not break exporters, and is of limited length."""

from opentelemetry.sdk.trace import ReadableSpan

from autogen_codeact.telemetry import Content, SpanObserver, Spans
from codeact_sandbox.types.observers import BlockFinished, BlockId, BlockStarted, CallFinished, CallIntent
from codeact_sandbox.types.result import ErrorInfo, Result, ToolCall

from .trees import Exported

HALF = "\ud800"
LONG = HALF + "x" * 1_000_000


def encoded(span: ReadableSpan) -> bytes:
    """All texts of a span as an exporter encodes them."""
    values = [str(value) for value in (span.attributes or {}).values()]
    return "".join([span.name, span.status.description or "", *values]).encode()


def test_texts_of_hostile_code_are_cut_and_can_be_encoded(exported: Exported) -> None:
    observer = SpanObserver(Spans(None, Content(None)))
    block = BlockStarted("box", 1, LONG, f"print('{HALF}')")
    observer.block_started(block)
    arguments = {LONG: [LONG, {HALF: HALF}, 1, None, True, 1.5]}
    error = ErrorInfo(LONG, LONG)
    refused = ToolCall(LONG, arguments, "refused", None, error)
    observer.call_finished(CallFinished(CallIntent(BlockId("box", 1), 1, LONG, arguments), refused))
    intent = CallIntent(BlockId("box", 1), 2, "look", arguments)
    observer.call_started(intent)
    observer.call_finished(CallFinished(intent, ToolCall("look", arguments, "ok", {HALF: [LONG] * 1000})))
    observer.block_finished(BlockFinished(block, Result(1, LONG, outcome="error", error=error)))
    outer, first, second = exported.spans
    assert [len(span.name) for span in (outer, first, second)] == [25, 213, 17]
    assert all(len(encoded(span)) < 700_000 for span in (outer, first, second))
