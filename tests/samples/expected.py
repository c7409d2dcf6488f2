"""The expected output of each sample, and functions that parse it."""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

SAMPLES = Path(__file__).parents[2] / "samples"
SHARED = {"models.py", "mcp_server.py"}

RECORDED = "Model: a recording, no key needed. Its answers are in this sample; the code in them really runs."
GENERATION, EXECUTION, ANSWER = "CodeGenerationEvent", "CodeExecutionEvent", "TextMessage"


@dataclass(frozen=True)
class Expected:
    """What a sample prints.

    Args:
        messages: Kind and source of every message shown, in order.
        computed: Lines that the sandbox printed, in order.
        said: Other printed lines, in order; answers that a recording gives are not among them.
        recording: Names of the sample's recorded answers.
        runner: Kind and source of the messages that contain the sandbox's output.
        stdin: Input that a person types.
        with_server: Whether the sample is also tested with a model server; enough samples for each kind of conversation.
    """

    messages: list[tuple[str, str]]
    computed: list[str]
    said: list[str] = field(default_factory=list)
    recording: list[str] = field(default_factory=lambda: ["RECORDING"])
    runner: tuple[str, str] = (EXECUTION, "")
    stdin: str | None = None
    with_server: bool = False


def steps(agent: str, count: int, answer: str = ANSWER) -> list[tuple[str, str]]:
    return [(ANSWER, "user"), *[(GENERATION, agent), (EXECUTION, agent)] * count, (answer, agent)]


def turn(agent: str, *, repaired: bool = False) -> list[tuple[str, str]]:
    attempt = [(GENERATION, agent), (EXECUTION, agent)]
    decision = [(GENERATION, agent)]
    return [(ANSWER, "user"), *attempt, *(decision + attempt if repaired else []), (ANSWER, agent)]


EXPECTED = {
    "standalone.py": Expected(
        turn("coder"),
        ["5736396"],
        runner=(EXECUTION, "coder"),
        with_server=True,
    ),
    "code_without_model.py": Expected(
        [(ANSWER, name) for name in ("alice", "runner", "alice", "runner", "mallory", "runner")],
        ["6 words", "1 line", "ZeroDivisionError: division by zero"],
        [
            "No model is used here: the code is in the messages.",
            "The script ran, then exited with an error (POSIX exit code: 1)",
        ],
        recording=[],
        runner=(ANSWER, "runner"),
    ),
    "batch.py": Expected(
        [],
        [],
        [
            "primes/100: 25, right, after 1 step",
            "primes/1000: 168, right, after 1 step",
            "primes/10000: 1229, right, after 1 step",
            "3 of 3 passed",
        ],
        recording=[],
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
            "It ended because coder said TERMINATE",
        ],
        runner=(ANSWER, "executor"),
        with_server=True,
    ),
    "save_and_load.py": Expected(
        [*turn("coder"), (ANSWER, "user"), (GENERATION, "coder"), *turn("coder")[1:]],
        ["832040", "1664080"],
        [
            '  "provider": "autogen_codeact.agents.CodeExecutorAgent",',
            "The loaded agent remembers 4 messages.",
            "The session was rebuilt: its 1 block was run again in a fresh sandbox, without network and on a copy of the files. "
            "Host tools were not called, and what the code had left running (threads, subprocesses) was ended. All went as "
            "before.",
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
            "Attempt number: 1",
            "Proposed correction: `sqrt` was never imported. I will import it from `math`.",
        ],
        runner=(EXECUTION, "statistician"),
        with_server=True,
    ),
    "codeact_tools.py": Expected(
        steps("calculator", 1) * 2,
        [],
        ["55", "  add -> 45", "  add -> 55", "16", "  add -> 8", "  multiply -> 16"],
    ),
    "codeact_session.py": Expected(
        steps("mathematician", 1) * 2,
        [
            "[0, 1, 1, 2, 3, 5, 8, 13, 21, 34]",
            "0 1 1 2 3 5 8 13 21 34 55 89 144 233 377 610 987 1597 2584 4181",
        ],
        runner=(EXECUTION, "mathematician"),
    ),
    "codeact_sales.py": Expected(
        steps("analyst", 4, "StructuredMessage[Report]"),
        ["price      float64", "8 rows", "teapot    273.0", "kettle    142.0", "ValueError: best_day: Field required"],
        [
            '{"total":500.0,"by_product":{"teapot":273.0,"kettle":142.0,"cup":85.0},"best_product":"teapot",'
            '"best_day":"2025-03-06"}',
            "A Report, checked: 500.00 in all, most of it with the teapot.",
        ],
        runner=(EXECUTION, "analyst"),
    ),
    "codeact_recovery.py": Expected(
        steps("shopper", 2),
        ["LookupError: we sell no tray", "119.50 for kettle, teapot, cup without tray"],
        runner=(EXECUTION, "shopper"),
    ),
    "codeact_numpy.py": Expected(
        steps("solver", 1),
        ["x = 2.000, y = 3.000, determinant -5.000"],
        runner=(EXECUTION, "solver"),
    ),
    "codeact_many_tools.py": Expected(
        steps("diver", 2),
        ["def units.fathom_to_foot(length: float) -> float:", "102.0 feet"],
        runner=(EXECUTION, "diver"),
    ),
    "codeact_branches.py": Expected(
        [],
        [],
        [
            "Attempt 1 has an error of 29.91.",
            "Attempt 2 has an error of 39.71.",
            "Attempt 3 has an error of 0.11.",
            "At 10 the best one predicts 20.95",
        ],
    ),
    "codeact_skills.py": Expected(
        steps("clerk", 2),
        ["Total: 1078.34"],
        runner=(EXECUTION, "clerk"),
    ),
    "codeact_ask_user.py": Expected(
        steps("asker", 1),
        ["13 is prime, after 3 tries"],
        ["A prime number, please:", "It worked."],
        runner=(EXECUTION, "asker"),
        stdin="8\n9\n13\n",
    ),
    "approve_later.py": Expected(
        steps("coder", 1),
        ["1267650600228229401496703205376"],
        ["q1: may coder run this code?", "2**100 has 31 digits."],
        runner=(EXECUTION, "coder"),
    ),
    "mcp_tools.py": Expected(
        steps("meteorologist", 1),
        [
            "Cairo is 24.1 degrees warmer than Oslo",
            "refused: the tool McpWorkbench.forget_city is not on the list of allowed tools",
        ],
        runner=(EXECUTION, "meteorologist"),
    ),
    "reviewed_team.py": Expected(
        [(ANSWER, name) for name in ("user", "coder", "reviewer", "executor", "coder")],
        ["11 [0, 1, 3, 5, 7, 9, 33, 99, 313, 585, 717]"],
        ["It ended because coder said TERMINATE"],
        recording=["CODER", "REVIEWER"],
        runner=(ANSWER, "executor"),
    ),
    "handoff_team.py": Expected(
        [
            (ANSWER, "user"),
            *[(GENERATION, "clerk"), (EXECUTION, "clerk"), ("HandoffMessage", "clerk")],
            *[(GENERATION, "accountant"), (EXECUTION, "accountant"), (ANSWER, "accountant")],
        ],
        ["to pay 2781.15"],
        ["net 2384.8", "It ended because Text message received from 'accountant'"],
        recording=["CLERK", "ACCOUNTANT"],
        runner=(EXECUTION, "accountant"),
    ),
}
"""All samples but gpu.py, whose output depends on the engine."""


def messages(output: str) -> list[tuple[tuple[str, str], list[str]]]:
    """Split the console's output into messages: kind and source, and lines."""
    parts = re.split(r"^-{10} ([\w\[\]]+) \((\w+)\) -{10}\n", output, flags=re.MULTILINE)
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
