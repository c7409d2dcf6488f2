"""docs/agent-framework.md: its program runs, with the tools of docs/coming-from.md; the classes that it names exist."""

import re

import agent_framework
import agent_framework.openai
import pytest
from scripted import ROOT, OpenAIServer, call, run_code, tool_results

PAGE = (ROOT / "docs" / "agent-framework.md").read_text(encoding="utf-8")
FENCED = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
(HERE,) = FENCED.findall(PAGE)
AUTOGEN = FENCED.findall((ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8"))[1]
ELSEWHERE = (
    "GroupChatBuilder HandoffBuilder SequentialBuilder"  # of agent-framework-orchestrations, which is not installed
)
OURS = "AsyncSandbox McpServer Model Result"
CODE = """revenue = {name: count * price(name) for name, count in units_sold().items()}
best = max(revenue, key=revenue.get)
print(f"{best}: {revenue[best]:.2f} euros")"""


def functions(program):
    """Return the functions that are tools, as text."""
    return re.findall(r"^def .*?(?=\n\n\n)", program, re.MULTILINE | re.DOTALL)


def test_both_programs_have_the_same_tools():
    assert functions(AUTOGEN) == functions(HERE)
    assert [text.partition("(")[0] for text in functions(HERE)] == ["def units_sold", "def price"]


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_the_program_runs(engine, tmp_path):
    server = OpenAIServer([call("execute_code", code=CODE), "teapot: 273.00 euros"]).start()
    try:
        assert run_code(HERE, server, tmp_path) == "teapot: 273.00 euros\n"
        assert tool_results(server) == ["teapot: 273.00 euros"]
    finally:
        server.stop()


def test_classes_of_the_table_exist():
    cells = [row.split("|")[2] for row in PAGE.splitlines() if row.startswith(("| `", "| spans"))]
    names = {name for cell in cells for name in re.findall(r"`@?([A-Za-z]\w+)", cell) if name[0].isupper()}
    known = {*dir(agent_framework), *dir(agent_framework.openai)}
    assert sorted(names - known - {*ELSEWHERE.split(), *OURS.split()}) == []
