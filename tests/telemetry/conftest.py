"""Fixtures for tests of spans."""

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from .trees import Exported


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exported]:
    """Keeps spans of the global provider, to which AutoGen's go, too."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The API lets it be set once in a process.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield Exported(exporter)
    provider.shutdown()
