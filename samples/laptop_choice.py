"""Code in the sandbox scores three laptops and prints JSON; the sample checks it with pydantic.

python samples/laptop_choice.py                 a recorded model, no key needed
python samples/laptop_choice.py --model NAME    a real model; its key is in OPENAI_API_KEY
"""

import asyncio
from typing import Literal, Self

from autogen_agentchat.messages import CodeExecutionEvent
from autogen_agentchat.ui import Console
from models import model_for
from pydantic import BaseModel, model_validator

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor

TASK = """\
Which of these laptops should I buy?

| laptop | price in euros | benchmark points | battery in hours | weight in kg |
|--------|----------------|------------------|------------------|--------------|
| A      | 1000           | 6000             | 9                | 1.40         |
| B      | 1250           | 9000             | 12               | 2.00         |
| C      | 2000           | 10000            | 8                | 1.75         |

In each column the best laptop gets 100 points and the others their proportion of it; a low price and a low weight are
good. Price counts 30 %, performance 40 %, battery 20 %, weight 10 %.

Compute the scores in code, rounded to one place. The last line that it prints is one JSON object of this form:
{"winner": "A, B or C", "score": <its score>, "scores": {"A": <score>, "B": <score>, "C": <score>}}
"""

RECORDING = [
    """\
```python
import json

weights = {"price": 0.3, "performance": 0.4, "battery": 0.2, "weight": 0.1}
laptops = {
    "A": {"price": 1000, "performance": 6000, "battery": 9, "weight": 1.40},
    "B": {"price": 1250, "performance": 9000, "battery": 12, "weight": 2.00},
    "C": {"price": 2000, "performance": 10000, "battery": 8, "weight": 1.75},
}


def points(name, column):
    values = [laptop[column] for laptop in laptops.values()]
    if column in ("price", "weight"):
        return 100 * min(values) / laptops[name][column]
    return 100 * laptops[name][column] / max(values)


scores = {name: round(sum(weights[c] * points(name, c) for c in weights), 1) for name in laptops}
winner = max(scores, key=scores.get)
print(json.dumps({"winner": winner, "score": scores[winner], "scores": scores}))
```
""",
    "Buy laptop B: nearly the fastest, by far the longest on battery, and much cheaper than C.",
]


class Choice(BaseModel):
    """The answer. It comes from the sandbox, so the host checks it."""

    winner: Literal["A", "B", "C"]
    score: float
    scores: dict[Literal["A", "B", "C"], float]

    @model_validator(mode="after")
    def _winner_is_the_best(self) -> Self:
        if self.scores.get(self.winner) != self.score or self.score != max(self.scores.values()):
            raise ValueError(f"{self.winner} with {self.score} is not the best of {self.scores}")
        return self


async def main() -> None:
    model = model_for(RECORDING)
    async with DockerCommandLineCodeExecutor() as executor:
        agent = CodeExecutorAgent("adviser", executor, model_client=model, max_retries_on_error=2)
        result = await Console(agent.run_stream(task=TASK))
    await model.close()

    # Use the output of the code, not the text of the model.
    printed = [message.result.output for message in result.messages if isinstance(message, CodeExecutionEvent)]
    choice = Choice.model_validate_json(printed[-1].splitlines()[-1])
    print(f"\nChecked on the host: {choice.winner} wins with {choice.score}; all scores: {choice.scores}")


if __name__ == "__main__":
    asyncio.run(main())
