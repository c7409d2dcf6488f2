"""Rebuilt blocks find the files of the first time; those that used other files are not rebuilt, and no file is changed."""

from pathlib import Path

import pytest

from autogen_codeact.agents import replay
from tests.agents.replay.support import DIFFERENT, DOUBLE, NOT_THERE, SAME, Make, contents, run_turn

pytestmark = pytest.mark.slow

MISSING = f"- {replay.FILES_MISSING}"
LOOK = "print(unit, globals().get('rows'), globals().get('after'), open('prices.csv').read().split())"


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
async def test_a_column_is_doubled_once_however_often_the_state_is_loaded(make: Make, work: Path) -> None:
    (work / "prices.csv").write_text("100\n150\n")
    blocks = ["unit = 'euro'", DOUBLE, "after = [int(line) for line in open('prices.csv')]"]
    state, _, printed = await run_turn(await make(), None, *blocks, LOOK)
    assert printed[-1] == "euro [100, 150] [200, 300] ['200', '300']\n"
    before = contents(work)

    for cycle in range(2):
        state, words, printed = await run_turn(await make(), state, LOOK)
        count = 4 + cycle
        assert words == DIFFERENT.format(f"{count} blocks were") + (
            MISSING.format(number=1, names="prices.csv")
            + "\n- block 2 was not rebuilt: it ended with `error` (FileNotFoundError: [Errno 2] No such file or directory: "
            "'prices.csv') instead of `ok`\n"
            "- block 4 printed something else than before: euro None [200, 300] ['200', '300']" + NOT_THERE
        )
        assert printed == ["euro None [200, 300] ['200', '300']\n"]
        assert contents(work) == before


async def test_blocks_find_the_same_files_as_the_first_time(make: Make, work: Path) -> None:
    """Files that blocks have made are made again in the copy, later ones are not there yet, and all are in the end."""
    (work / "given.txt").write_text("given")
    blocks = [
        "import os\nfirst = sorted(os.listdir())",
        "open('one.txt', 'w').write('1' * 100_000)\nNone",
        "one = len(open('one.txt').read())\nopen('one.txt', 'a').write('2')\nos.remove('given.txt')\nNone",
        "third = (sorted(os.listdir()), os.path.getsize('one.txt'), os.path.exists('given.txt'))",
    ]
    state, _, _ = await run_turn(await make(), None, *blocks)
    before = contents(work)
    (work / "later.txt").write_text("later")
    look = "print(first, one, third, sorted(os.listdir()), os.path.getsize('one.txt'))"
    _, words, printed = await run_turn(await make(), state, look)
    assert words == SAME.format("4 blocks were")
    assert printed == [
        "['given.txt'] 100000 (['one.txt'], 100001, False) ['given.txt', 'later.txt', 'one.txt'] 100001\n"
    ]
    assert contents(work) == {**before, "later.txt": b"later"}


async def test_the_model_is_told_of_a_block_that_goes_on_without_what_has_changed(make: Make, work: Path) -> None:
    codes = {
        "caught": "try:\n    x = open('data.txt').read()\nexcept Exception:\n    x = None",
        "in a program": "import subprocess\nx = subprocess.run(['cat', 'data.txt'], capture_output=True).stdout",
    }
    for name, code in codes.items():
        (work / "data.txt").write_text("old")
        state, _, _ = await run_turn(await make(), None, code)
        (work / "data.txt").write_text("new")
        before = contents(work)
        _, words, printed = await run_turn(await make(), state, "print(bool(x), open('data.txt').read())")
        told = MISSING.format(number=1, names="data.txt")
        assert words == DIFFERENT.format("1 block was") + told, name
        assert printed == ["False new\n"], name
        assert contents(work) == before, name


async def test_a_block_that_only_writes_what_has_changed_is_rebuilt(make: Make, work: Path) -> None:
    (work / "data.txt").write_text("old")
    state, _, _ = await run_turn(
        await make(), None, "open('data.txt', 'w').write('mine')\nNone", "own = open('data.txt').read()"
    )
    (work / "data.txt").write_text("another")
    _, words, printed = await run_turn(await make(), state, "print(own, open('data.txt').read())")
    assert words == DIFFERENT.format("2 blocks were") + MISSING.format(number=1, names="data.txt")
    assert printed == ["mine another\n"]


def seven() -> int:
    """A function for the code."""
    return 7


async def test_blocks_that_depend_on_one_that_was_not_rebuilt_are_named(make: Make, work: Path) -> None:
    (work / "data.txt").write_text("old")
    blocks = ["text = open('data.txt').read()", "length = len(text)", "other = 7"]
    state, _, _ = await run_turn(await make(), None, *blocks)
    (work / "data.txt").unlink()
    _, words, printed = await run_turn(await make(), state, "print(sorted({'text', 'length', 'other'} & {*globals()}))")
    assert words == DIFFERENT.format("3 blocks were") + (
        "- block 1 was not rebuilt: it ended with `error` (FileNotFoundError: [Errno 2] No such file or directory: "
        "'data.txt') instead of `ok`\n"
        "- block 2 was not rebuilt: it ended with `error` (NameError: name 'text' is not defined) instead of `ok`\n"
        + MISSING.format(number=3, names="data.txt")
        + NOT_THERE
    )
    assert printed == ["['other']\n"]


async def test_temporary_files_of_a_block_that_was_not_rebuilt_are_removed(make: Make, work: Path) -> None:
    (work / "data.txt").write_text("old")
    blocks = [
        "with open('/tmp/copy.txt', 'w') as copy, open('data.txt') as file:\n    copy.write(file.read())",
        "text = open('/tmp/copy.txt').read()",
    ]
    state, _, _ = await run_turn(await make(), None, *blocks)
    (work / "data.txt").write_text("new")
    _, words, printed = await run_turn(
        await make(), state, "import os\nprint('text' in globals(), os.path.exists('/tmp/copy.txt'))"
    )
    assert "block 2 was not rebuilt: it ended with `error` (FileNotFoundError: " in words
    assert printed == ["False False\n"]
