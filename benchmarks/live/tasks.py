"""Tasks of six kinds with exact answers, made from a seed, and what counts as a right answer: the same for every library."""

import json
import random
import re
from dataclasses import asdict, dataclass, field

WORDS = [
    "river",
    "garden",
    "window",
    "silver",
    "market",
    "planet",
    "bottle",
    "candle",
    "forest",
    "letter",
    "summer",
    "button",
]
ENDING = " Print the result. When you have seen it, finish with one line: ANSWER: and the result."


@dataclass(frozen=True)
class Task:
    """A task.

    Args:
        kind: One of six.
        prompt: What the agent is asked.
        expected: The answer, as Python prints it.
        files: Contents of files in the folder where code runs, by name.
        prices: What the tool `price(item)` returns; the task has that tool if this is not empty.
    """

    name: str
    kind: str
    prompt: str
    expected: str
    files: dict = field(default_factory=dict)
    prices: dict = field(default_factory=dict)

    def to_json(self):
        """Return it as text."""
        return json.dumps(asdict(self))


def make_tasks(count, seed=7):
    """Return tasks, equally many of each kind, in an order in which kinds take turns."""
    chance = random.Random(seed)
    tasks = []
    for number in range(count):
        kind, make = list(KINDS.items())[number % len(KINDS)]
        prompt, expected, *more = make(chance)
        tasks.append(Task(f"{kind}-{number}", kind, prompt + ENDING, str(expected), *more))
    return tasks


def _arithmetic(chance):
    low, high, step = chance.randint(1, 20), chance.randint(50, 400), chance.randint(2, 9)
    return chance.choice(
        [
            (f"What is the sum of the integers from {low} to {high}?", sum(range(low, high + 1))),
            (f"What is {high} * {high + step} - {low}?", high * (high + step) - low),
            (f"How many numbers from 1 to {high} are divisible by {step}?", high // step),
            (f"What is the remainder of {high**2} divided by {step + 4}?", high**2 % (step + 4)),
        ]
    )


def _strings(chance):
    word, other = chance.sample(WORDS, 2)
    return chance.choice(
        [
            (f"Reverse the word '{word}'.", word[::-1]),
            (
                f"Write the word '{word}' in upper case, followed by the word '{other}' without a space.",
                word.upper() + other,
            ),
            (f"How many letters does the text '{word} {other} {word}' have, without spaces?", len(2 * word + other)),
            (f"Sort the letters of the word '{word}' alphabetically and join them.", "".join(sorted(word))),
        ]
    )


def _lists(chance):
    numbers = [chance.randint(1, 99) for _ in range(chance.randint(6, 9))]
    return chance.choice(
        [
            (f"Sort the list {numbers} in ascending order.", sorted(numbers)),
            (f"What is the largest number in the list {numbers}?", max(numbers)),
            (f"What is the sum of the list {numbers}?", sum(numbers)),
            (
                f"Keep only the even numbers of the list {numbers}, in the same order.",
                [n for n in numbers if n % 2 == 0],
            ),
        ]
    )


def _files(chance):
    numbers = [chance.randint(1, 500) for _ in range(12)]
    words = [chance.choice(WORDS) for _ in range(15)]
    return chance.choice(
        [
            (
                "The file numbers.txt has one integer on each line. What is their sum?",
                sum(numbers),
                {"numbers.txt": _lines(numbers)},
            ),
            (
                "The file numbers.txt has one integer on each line. What is the largest?",
                max(numbers),
                {"numbers.txt": _lines(numbers)},
            ),
            ("How many lines does the file words.txt have?", len(words), {"words.txt": _lines(words)}),
            (
                f"How often is the word {words[0]} in the file words.txt, which has one word on each line?",
                words.count(words[0]),
                {"words.txt": _lines(words)},
            ),
        ]
    )


def _lines(values):
    return "".join(f"{value}\n" for value in values)


def _tool(chance):
    items = chance.sample(WORDS, 4)
    prices = {item: chance.randint(2, 90) for item in items}
    count = chance.randint(2, 12)
    first, second = items[:2]
    return (
        *chance.choice(
            [
                (
                    f"The function price(item) returns the price of an item. What do {count} of '{first}' cost?",
                    count * prices[first],
                ),
                (
                    f"The function price(item) returns the price of an item. What do '{first}' and '{second}' cost together?",
                    prices[first] + prices[second],
                ),
            ]
        ),
        {},
        prices,
    )


def _repair(chance):
    numbers = [chance.randint(1, 60) for _ in range(6)]
    code, right = chance.choice(
        [
            (f"values = {list(map(str, numbers))}\nprint(sum(values))", sum(numbers)),
            (
                f"values = {numbers}\ntotal = 0\nfor i in range(len(values) + 1):\n    total += values[i]\nprint(total)",
                sum(numbers),
            ),
            (
                f"import maths\nprint(maths.gcd({6 * numbers[0]}, {6 * numbers[1]}))",
                _gcd(6 * numbers[0], 6 * numbers[1]),
            ),
            (f"values = {numbers}\nprint(values.maximum())", max(numbers)),
        ]
    )
    return f"This code fails. Repair it and run it. What does the repaired code print?\n\n{code}\n\n", right


def _gcd(a, b):
    return a if b == 0 else _gcd(b, a % b)


KINDS = {
    "arithmetic": _arithmetic,
    "strings": _strings,
    "lists": _lists,
    "files": _files,
    "tool": _tool,
    "repair": _repair,
}

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?![\w])")
_LIST = re.compile(r"\[[^\[\]]*\]")
_QUOTED = re.compile(r"['\"`“]([^'\"`“”\n]+)['\"`”]")


def value_in(text, expected):
    """Return the value that a text gives: what follows the last `ANSWER:`, else its last number, list, or quoted string."""
    _, marked, after = text.rpartition("ANSWER:")
    where = after.strip().split("\n")[0] if marked else text
    if expected.startswith("["):
        found = _LIST.findall(where)
        return re.sub(r"\s*,\s*", ", ", found[-1]) if found else None
    if re.fullmatch(r"-?\d+", expected):
        found = _NUMBER.findall(where)
        return re.sub(r"\.0+$", "", found[-1].replace(",", "")) if found else None
    found = _QUOTED.findall(where) or re.findall(r"\w+", where)
    return found[-1].strip() if found else None


def is_right(text, expected):
    """Return whether a text's value is the expected one."""
    return value_in(text or "", expected) == expected


def is_in_outputs(outputs, expected):
    """Return whether one of the outputs of code has the expected value as a line of its own, or as its last value."""
    return any(
        expected in (line.strip().strip("'\"") for line in output.splitlines()) or is_right(output, expected)
        for output in outputs
    )
