"""What each sample prints, and how to read it."""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

SAMPLES = Path(__file__).parents[2] / "samples"
SHARED = {"models.py"}

RECORDED = "Model: a recording, no key needed. Its answers are in this sample; the code in them really runs."
GENERATION, EXECUTION, ANSWER = "CodeGenerationEvent", "CodeExecutionEvent", "TextMessage"


@dataclass(frozen=True)
class Expected:
    """What a sample prints.

    Args:
        messages: Kind and source of every message shown, in order.
        computed: Lines that the sandbox printed, in order. Their figures stand in no code that was sent there.
        said: Other lines, in order.
        recording: Names of the sample's recorded answers.
        runner: Whose messages show what the sandbox printed.
    """

    messages: list[tuple[str, str]]
    computed: list[str]
    said: list[str]
    recording: list[str] = field(default_factory=lambda: ["RECORDING"])
    runner: tuple[str, str] = (EXECUTION, "")


def turn(agent: str, *, repaired: bool = False) -> list[tuple[str, str]]:
    attempt = [(GENERATION, agent), (EXECUTION, agent)]
    decision = [(GENERATION, agent)]
    return [(ANSWER, "user"), *attempt, *(decision + attempt if repaired else []), (ANSWER, agent)]


EXPECTED = {
    "standalone.py": Expected(
        turn("coder"),
        ["5736396"],
        ["The sum of all prime numbers below 10,000 is 5,736,396."],
        runner=(EXECUTION, "coder"),
    ),
    "code_without_model.py": Expected(
        [(ANSWER, name) for name in ("alice", "runner", "alice", "runner", "mallory", "runner")],
        ["6 words", "1 line", "ZeroDivisionError: division by zero"],
        ["No model is asked here: the code is in the messages.", "The code failed with exit code 1."],
        recording=[],
        runner=(ANSWER, "runner"),
    ),
    "coder_executor_team.py": Expected(
        [(ANSWER, name) for name in ("user", "coder", "executor", "coder", "executor", "coder")],
        [
            "11 of them: 2025-09-13 2025-12-13 2026-06-13 2027-02-13 2027-03-13 2027-11-13 2028-05-13 2029-01-13 "
            "2029-10-13 2030-04-13 2030-07-13",
            "10 of them: 2025-06-13 2026-02-13 2026-03-13 2026-11-13 2027-08-13 2028-10-13 2029-04-13 2029-07-13 "
            "2030-09-13 2030-12-13",
        ],
        [
            "There are 10 of them; the first is 13 June 2025, the last 13 December 2030.",
            "It ended because coder said TERMINATE",
        ],
        runner=(ANSWER, "executor"),
    ),
    "save_and_load.py": Expected(
        turn("coder") * 2,
        ["the variable is gone", "1664080"],
        [
            "The 30th Fibonacci number is 832040. It is in the variable `fibonacci`.",
            '  "provider": "autogen_codeact.agents.CodeExecutorAgent",',
            "The loaded agent remembers 4 messages.",
            "Twice the 30th Fibonacci number is 1664080. The variable was gone, so I set it again.",
        ],
        recording=["BEFORE", "AFTER"],
        runner=(EXECUTION, "coder"),
    ),
    "laptop_choice.py": Expected(
        turn("adviser"),
        ['{"winner": "B", "score": 87.0, "scores": {"A": 79.0, "B": 87.0, "C": 76.3}}'],
        ["Checked on the host: B wins with 87.0; all scores: {'A': 79.0, 'B': 87.0, 'C': 76.3}"],
        runner=(EXECUTION, "adviser"),
    ),
    "sales_analysis.py": Expected(
        turn("analyst") * 3,
        [
            "total revenue: 500.00",
            "best seller: teapot (273.00)",
            "average sale: 62.50",
            "average day: 83.33",
        ],
        [
            "The total revenue is 500.00.",
            "The teapot is the best seller, with 273.00. The revenue of each product is in by_product.csv.",
            "A sale brings in 62.50 on average, a day with sales 83.33.",
            "by_product.csv on the host:",
            "product,revenue",
            "teapot,273.0",
            "kettle,142.0",
            "cup,85.0",
        ],
        runner=(EXECUTION, "analyst"),
    ),
    "error_recovery.py": Expected(
        turn("statistician", repaired=True),
        ["NameError: name 'sqrt' is not defined", "mean: 18.0", "population standard deviation: 12.32"],
        [
            "Trying again (1 of 2): `sqrt` was never imported. I will import it from `math`.",
            "The mean is 18.0, the population standard deviation 12.32.",
        ],
        runner=(EXECUTION, "statistician"),
    ),
}
"""All samples but gpu.py, whose output depends on the engine."""


def messages(output: str) -> list[tuple[tuple[str, str], list[str]]]:
    """Take the console's output apart: kind and source of each message, and its lines."""
    parts = re.split(r"^-{10} (\w+) \((\w+)\) -{10}\n", output, flags=re.MULTILINE)
    return [((kind, source), text.splitlines()) for kind, source, text in zip(*[iter(parts[1:])] * 3, strict=True)]


def assigned(sample: str, *names: str) -> list[str]:
    """Return the strings in constants of a sample, without running it."""
    found: dict[str, object] = {}
    for node in ast.parse((SAMPLES / sample).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in names:
            found[node.targets[0].id] = ast.literal_eval(node.value)
    strings: list[str] = []
    for name in names:
        value = found[name]
        strings += [value] if isinstance(value, str) else list(value)  # type: ignore[call-overload]
    return strings
