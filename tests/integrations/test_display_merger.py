"""Displays are put in the place of the text that stands for them, however the two are mixed."""

import random

import pytest

from autogen_codeact.integrations.display_merger import DisplayMerger
from autogen_codeact.sandbox.types.displays import Display

FIGURE = Display("figure-1.png", {"text/plain": "<Figure size 640x480>", "image/png": b"..."})
TABLE = Display("display-2", {"text/plain": "   a\n0  1", "text/html": "<table>"})
OUTPUT = "before\n<Figure size 640x480: figure-1.png>\nbetween\n   a\n0  1\nafter\n"


def merged(pieces):
    """Join neighbouring texts."""
    result = []
    for piece in pieces:
        if isinstance(piece, str) and result and isinstance(result[-1], str):
            result[-1] += piece
        else:
            result.append(piece)
    return result


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20, 1000])
def test_displays_before_their_text_in_pieces_of_any_size(size):
    merger = DisplayMerger()
    pieces = [*merger.add_display(FIGURE), *merger.add_display(TABLE)]
    for at in range(0, len(OUTPUT), size):
        pieces += merger.add_text(OUTPUT[at : at + size])
    assert merged([*pieces, *merger.rest()]) == ["before\n", FIGURE, "between\n", TABLE, "after\n"]


def test_a_display_after_its_text_is_shown_at_once():
    merger = DisplayMerger()
    assert merger.add_text("x\n<Figure size 640x480: figure-1.png>\n") == ["x\n<Figure size 640x480: figure-1.png>\n"]
    assert merger.add_display(FIGURE) == [FIGURE]
    assert merger.rest() == []


def test_a_display_without_its_text_is_shown_after_more_text_or_at_the_end():
    merger = DisplayMerger()
    assert merger.add_display(FIGURE) == []
    shown = [piece for number in range(900) for piece in merger.add_text(f"{number:09}\n")]
    assert shown.count(FIGURE) == 1
    assert merger.add_display(FIGURE) == []
    assert merger.add_text("   <Figure") == ["   <Figure"]
    assert merger.rest() == [FIGURE]


def test_text_within_a_line_is_not_taken_for_a_display():
    merger = DisplayMerger()
    merger.add_display(TABLE)
    assert merger.add_text("x") == ["x"]
    assert merger.add_text("   a\n0  1\n") == ["   a\n0  1\n"]
    assert merger.rest() == [TABLE]


def test_nothing_is_lost_whatever_comes():
    chance = random.Random(5)
    for _ in range(300):
        merger, pieces, given = DisplayMerger(), [], ""
        for _ in range(chance.randrange(12)):
            if chance.random() < 0.3:
                pieces += merger.add_display(chance.choice([FIGURE, TABLE]))
            else:
                text = "".join(
                    chance.choices(["\n", "   a\n", "0  1", "<Figure size 640x480", ": figure-1.png>\n", "x"], k=4)
                )
                given += text
                pieces += merger.add_text(text)
        pieces += merger.rest()
        texts = "".join(f"{piece.output_line}\n" if isinstance(piece, Display) else piece for piece in pieces)
        assert len(texts) >= len(given)
        assert "" not in pieces
