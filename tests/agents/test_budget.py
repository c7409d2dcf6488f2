"""Budgets in money, which agents, teams and batches share."""

from typing import Any

import pytest
from autogen_core.models import RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import ValidationError

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.agents.budget import Budget, Meter, Prices, prices_of
from autogen_codeact.batch.settings import BatchSettings
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor

PRICES = Prices(prompt=1_000_000, completion=2_000_000)


@pytest.mark.parametrize(
    ("budget", "reached"),
    [
        (Budget(max_tokens=5), ("max_tokens", "The budget of 5 tokens is used up (7).")),
        (Budget(max_cost=10, prices=PRICES), ("max_cost", "The budget of 10 is used up (11).")),
        (Budget(max_cost=12, prices=PRICES), None),
        (Budget(max_steps=1), ("max_steps", "The budget of 1 step is used up.")),
        (Budget(max_turns=2), ("max_turns", "The budget of 2 turns is used up.")),
        (Budget(max_steps=1, max_tokens=5), ("max_tokens", "The budget of 5 tokens is used up (7).")),
        (Budget(), None),
    ],
)
def test_a_meter_names_the_limit_that_is_reached_first(budget: Budget, reached: Any) -> None:
    outer = Meter(budget)
    Meter(None, outer=outer).add(RequestUsage(3, 4), turns=2)
    outer.add(RequestUsage(-100, -100), steps=0)  # of a server that counts wrongly
    assert outer.reached() == reached


def test_prices_are_those_of_the_list_or_given() -> None:
    assert Prices.known("gpt-5-mini") == Prices(prompt=0.25, completion=2)
    assert Prices.known("gpt-5-mini-2025-08-07") == Prices.known("gpt-5-mini")
    assert Prices.known("gpt-5-minimal") is None
    assert prices_of(["gpt-5", None, "gpt-5"]) == Prices.known("gpt-5")
    assert prices_of(["gpt-5", "gpt-5-mini"]) is None
    assert prices_of([]) is None
    with pytest.raises(ValueError, match="max_cost needs prices"):
        Meter(Budget(max_cost=1))
    with pytest.raises(ValidationError, match="max_cost needs prices"):
        BatchSettings(max_cost=1)
    with pytest.raises(ValidationError, match="greater than 0"):
        Budget(max_cost=0, prices=PRICES)


async def test_an_agent_ends_at_its_cost_and_says_so() -> None:
    answers = ["```python\nprint(6 * 7)\n```", "It is 42, as far as I got."]
    model = ReplayChatCompletionClient(answers)
    executor = BubblewrapCommandLineCodeExecutor(mode="session")
    async with executor:
        agent = CodeActAgent("coder", executor, model_client=model, budget=Budget(max_cost=0.5, prices=PRICES))
        result = await agent.run(task="6 * 7?")
    answer = result.messages[-1]
    assert (answer.content, answer.metadata["stopped"]) == ("It is 42, as far as I got.", "max_cost")
    told = model.create_calls[-1]["messages"][-1].content
    assert told == (
        "You have used up the money that there is for this task. No more code is run. Give the best answer that you can give "
        "now, from what you have seen; say what is missing."
    )
    config = agent.dump_component().config
    assert config["budget"] == {"max_cost": 0.5, "prices": PRICES.model_dump()}
