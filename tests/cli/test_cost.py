"""Cost in money: the last line of a turn in a chat, and the prices of a batch."""

import re
from pathlib import Path

import pytest

from autogen_codeact.agents.budget import Prices
from autogen_codeact.cli.batch import read_settings
from autogen_codeact.cli.jobs import AgentChoice, BatchJob, ModelChoice
from autogen_codeact.cli.sandbox_choice import SandboxChoice, secrets_in
from tests.cli.support import code, codeact, replay


def test_a_batch_finds_the_list_price_of_its_model() -> None:
    def prices(spec: str, price: str | None = None) -> Prices | None:
        job = BatchJob(
            Path("t"),
            Path("o"),
            ModelChoice(spec),
            AgentChoice(budget=[f"price={price}"] if price else None),
            SandboxChoice(),
        )
        return read_settings(job)[1].prices

    assert prices("gpt-5-mini") == Prices(prompt=0.25, completion=2)
    assert prices("gpt-5-mini", "1:2") == Prices(prompt=1, completion=2)
    assert prices("somebody/gpt-5-mini") is None


def test_secrets_of_the_command_line_name_variables_and_hosts() -> None:
    assert secrets_in(["KEY@a.example", "KEY@b.example:8443", "B@c.example"]) == {
        "KEY": {"env": "KEY", "hosts": ["a.example", "b.example:8443"]},
        "B": {"env": "B", "hosts": ["c.example"]},
    }


LIMITED = ["--budget", "price=0:1000", "--budget", "cost=0.0015", "--sandbox", "bubblewrap"]
"""An answer of two words costs more."""


@pytest.mark.parametrize("kind", ["--act", "--team"])
def test_a_run_ends_at_its_cost_and_says_what_was_left_undone(bubblewrap: None, tmp_path: Path, kind: str) -> None:
    model = replay(tmp_path, code("print(6 * 7)"), "41 is missing.")
    done = codeact("run", "Go.", kind, "--save", "none", "--model", model, *LIMITED)
    assert done.status == 1
    assert done.out.splitlines()[-1] == (
        "The limit of --budget cost was reached: the answer says what is missing."
        if kind == "--act"
        else "The budget of 0.0015 is used up (0.005)."
    ), done.out


def test_a_chat_shows_what_a_turn_may_cost(bubblewrap: None, tmp_path: Path) -> None:
    model = replay(tmp_path, code("print(6 * 7)"), "41 is missing.", "Yes.")
    done = codeact("chat", "--save", "none", "--model", model, *LIMITED, stdin="first\nsecond\n")
    assert done.status == 0
    ends = [line for line in done.out.splitlines() if "limit" in line or "$" in line]
    assert [re.sub(r"[\d.]+ m?s", "0 s", line) for line in ends] == [
        "The limit of --budget cost was reached: the answer says what is missing.",
        "[1 block, 8 tokens, $0.0080 of $0.0015, 0 s]",
        "[1 token, $0.0010 of $0.0015, 0 s]",
    ]
