"""Differences of texts."""

import random
from difflib import unified_diff

from autogen_codeact.runs.differences import MAX_CHANGED_LINES, differing_lines


def test_lines_are_those_of_difflib():
    chance = random.Random(1)
    for _ in range(300):
        before = [chance.choice("abc") for _ in range(chance.randrange(30))]
        after = list(before)
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(after) + 1)
            after[at : at + chance.randrange(3)] = [chance.choice("xyz") for _ in range(chance.randrange(3))]
        lines = differing_lines(before, after, "name")
        assert lines is not None
        assert applied(before, lines) == after
        assert bool(lines) == bool([*unified_diff(before, after)])


def applied(before: list[str], lines: list[str]) -> list[str]:
    """Apply a unified diff."""
    after: list[str] = []
    at = 0
    for line in lines[2:]:
        if line.startswith("@@"):
            start, _, size = line.split(" ")[1][1:].partition(",")
            first = int(start) - (size != "0")
            after += before[at:first]
            at = first
        elif line[0] == "+":
            after.append(line[1:])
        else:
            assert before[at] == line[1:]
            after += [line[1:]] if line[0] == " " else []
            at += 1
    return after + before[at:]


def test_two_long_and_different_texts_are_not_compared():
    many = MAX_CHANGED_LINES + 1
    assert differing_lines(["a"] * many, ["b"] * many) is None
    same = ["same"] * 100_000
    lines = differing_lines([*same, "a", *same], [*same, "b", *same])
    assert lines == ["--- ", "+++ ", "@@ -99998,7 +99998,7 @@", *[" same"] * 3, "-a", "+b", *[" same"] * 3]
