"""Cost in money: the last line of a turn in a chat, and the prices of a batch."""

import re
from pathlib import Path

from autogen_agentchat.messages import TextMessage
from autogen_core.models import RequestUsage

from autogen_codeact.agents.budget import Prices
from autogen_codeact.cli.batch_input import read_settings
from autogen_codeact.cli.jobs import AgentChoice, BatchJob
from autogen_codeact.cli.model_choice import ModelChoice
from autogen_codeact.cli.sandbox_choice import SandboxChoice, secrets_in
from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.cli.transcript import Transcript


def test_the_cost_of_a_turn_stands_beside_its_tokens() -> None:
    view = Transcript(Terminal(), chat=True)
    message = TextMessage(content="Done.", source="coder", models_usage=RequestUsage(10_000, 200))
    for prices, cost in [(None, ""), (Prices.known("gpt-5-mini"), ", $0.0029")]:
        view.prices = prices
        view.begin()
        view.show(message)
        assert re.fullmatch(rf"\[10,200 tokens{re.escape(cost)}, \S+ m?s\]", view.summary()), view.summary()


def test_a_batch_finds_the_list_price_of_its_model() -> None:
    def prices(spec: str, price: str | None = None) -> Prices | None:
        job = BatchJob(Path("t"), Path("o"), ModelChoice(spec), AgentChoice(), SandboxChoice(), price=price)
        return read_settings(job)[1].prices

    assert prices("gpt-5-mini") == Prices(prompt=0.25, completion=2)
    assert prices("gpt-5-mini", "1:2") == Prices(prompt=1, completion=2)
    assert prices("somebody/gpt-5-mini") is None


def test_secrets_of_the_command_line_name_variables_and_hosts() -> None:
    assert secrets_in(["KEY@a.example", "KEY@b.example:8443", "B@c.example"]) == {
        "KEY": {"env": "KEY", "hosts": ["a.example", "b.example:8443"]},
        "B": {"env": "B", "hosts": ["c.example"]},
    }
