"""`ToolSearch`: the right tool for a question, of many and of odd ones."""

import importlib
import time
from pathlib import Path

import pytest

from codeact_sandbox import HostTool
from codeact_sandbox.tools.search import ToolSearch

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def find_customer(city: str, vatNumber: str = "") -> list[str]:  # noqa: N803 - names of others
    """Look up who buys from us."""
    raise NotImplementedError


def cancel_orders(number: int) -> None:
    """Cancel an order that has not been sent."""


def names(index: ToolSearch, query: str, limit: int = 5) -> list[str]:
    return [tool.name for tool in index.search(query, limit)]


def test_names_parameters_and_descriptions_are_searched() -> None:
    index = ToolSearch([HostTool(find_customer), HostTool(cancel_orders)])
    for query, expected in {
        "customers": ["find_customer"],
        "VAT number": ["find_customer", "cancel_orders"],
        "canceling": ["cancel_orders"],
        "BUYS": ["find_customer"],
        "the weather": [],
        "": [],
    }.items():
        assert names(index, query) == expected, query
    assert names(index, "number", limit=1) == ["cancel_orders"]
    assert ToolSearch([]).search("anything") == []


def test_the_right_tool_is_among_the_first_five_for_nine_of_ten_questions(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    benchmark = importlib.import_module("wrapped_tools")
    tools = benchmark.host_tools(benchmark.tools_in(shared_data / "bfcl"))
    some, every, count = benchmark.found(shared_data / "bfcl", tools)
    assert (len(tools), count) == (162, 731)
    assert some >= 0.9
    assert every >= 0.7
    began = time.process_time()
    ToolSearch((tools * 13)[:2000])
    assert time.process_time() - began < 0.5  # 0.1 s on an idle machine


def test_long_descriptions_and_queries_are_cut() -> None:
    tool = HostTool(find_customer)
    tool.description = "word " * 2_000_000
    began = time.process_time()
    assert names(ToolSearch([tool]), "word " * 2_000_000) == ["find_customer"]
    assert time.process_time() - began < 0.5
