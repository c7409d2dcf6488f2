"""`codeact run` makes spans if the SDK has been set up before, as OpenTelemetry's launcher does."""

from pathlib import Path

import pytest

from tests import processes
from tests.cli.support import code, environment, replay

LAUNCHER = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

exporter = ConsoleSpanExporter(out=sys.stderr, formatter=lambda span: span.name + "\\n")
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

from autogen_codeact.cli.main import main
main()
"""


@pytest.mark.usefixtures("bubblewrap")
def test_codeact_run_makes_spans_if_an_sdk_is_set_up(tmp_path: Path) -> None:
    model = replay(tmp_path, code("final_answer(6 * 7)"))
    run = ("run", "What is 6*7?", "--act", "--sandbox", "bubblewrap", "--model", model, "--json", "--save", "run")
    done = processes.run(["-c", LAUNCHER, *run], cwd=tmp_path, env=environment())
    assert done.returncode == 0, done.stderr
    names = [line for line in done.stderr.splitlines() if not line.startswith(("the sandbox runs", "codeact:"))]
    # In the order in which they end.
    assert names == [
        *("create_agent coder", "chat", "execute_tool final_answer", "execute_tool execute_code", "invoke_agent coder"),
        "codeact.sandbox.stop",
    ]
