"""Spans as a tree of lines, with the attributes that don't vary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

VARYING = ("codeact.sandbox", "gen_ai.tool.call.id")
AUTOGEN = "autogen"


@dataclass
class Exported:
    """Spans that were exported."""

    exporter: InMemorySpanExporter

    @property
    def spans(self) -> list[ReadableSpan]:
        """Spans of agents, and ours, in the order in which they began; AutoGen's spans about its message bus are left out."""
        found = [each for each in self.exporter.get_finished_spans() if not _of_the_bus(each)]
        return sorted(found, key=lambda span: span.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        """Return the only span of this name."""
        (found,) = (span for span in self.spans if span.name == name)
        return found

    def tree(self) -> list[str]:
        """Return names and statuses, each indented below its parent, in the order in which they began."""
        known = {span.context.span_id: span for span in self.exporter.get_finished_spans()}

        def parent(span: ReadableSpan) -> ReadableSpan | None:
            above = known.get(span.parent.span_id) if span.parent is not None else None
            return parent(above) if above is not None and _of_the_bus(above) else above

        def lines(above: ReadableSpan | None, depth: int) -> list[str]:
            found = []
            for span in self.spans:
                if parent(span) is above:
                    error = (span.attributes or {}).get("error.type")
                    found += ["  " * depth + span.name + (f" !{error}" if error else ""), *lines(span, depth + 1)]
            return found

        return lines(None, 0)


def _of_the_bus(span: ReadableSpan) -> bool:
    return span.name.startswith((f"{AUTOGEN} ", "create_agent "))


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span that don't vary from run to run."""
    return {name: value for name, value in (span.attributes or {}).items() if name not in VARYING}
