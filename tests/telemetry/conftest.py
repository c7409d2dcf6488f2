"""Fixtures for tests of spans."""

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from .trees import Exported


@pytest.fixture(params=["global provider", "own provider"])
def exported(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Exported]:
    """Keeps spans, of the global provider, for which AutoGen makes spans, too, or of one that only `instrument` gets."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    if request.param == "global provider":
        # The API lets it be set once in a process.
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
        yield Exported(exporter, None)
    else:
        yield Exported(exporter, provider)
    provider.shutdown()
