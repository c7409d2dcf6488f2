"""File names that a model or a sandbox made up."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codeact_sandbox.types.filenames import MAX_DEPTH, MAX_NAME_BYTES, safe_name
from tests.texts import ANY


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("a.py", "a.py"),
        ("./a//b/./c.txt", "a/b/c.txt"),
        ("with space/ü/图.png", "with space/ü/图.png"),
        (".hidden", ".hidden"),
        ("...", "..."),
        ("a-b", "a-b"),
        ("C:x", "C:x"),
        ("x" * 255, "x" * 255),
        ("/".join(["d"] * MAX_DEPTH), "/".join(["d"] * MAX_DEPTH)),
    ],
)
def test_accepted(name, safe):
    assert safe_name(name) == safe
    assert safe_name(safe) == safe


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        (" \t", "empty"),
        (".", "workspace itself"),
        ("././/.", "names a folder"),
        ("..", "could leave the workspace"),
        ("a/../b", "could leave the workspace"),
        ("/a", "absolute"),
        ("//a", "absolute"),
        ("a/", "names a folder"),
        ("a/.", "names a folder"),
        ("a\0b", "control character"),
        ("a\nb", "control character"),
        ("a\x7fb", "control character"),
        ("a\x85b", "control character"),
        ("a\u2028b", "control character"),
        ("a\\b", "backslash"),
        ("-rf", "begins with `-`"),
        ("a/-rf", "begins with `-`"),
        (".codeact-part-x", "reserved"),
        ("x" * 256, "more than 255 bytes"),
        ("ü" * 128, "more than 255 bytes"),
        ("/".join(["d" * 200] * 20), "bytes long; at most"),
        ("/".join(["d"] * (MAX_DEPTH + 1)), "levels deep"),
        (os.fsdecode(b"a\xff"), "not valid Unicode"),
        ("a\ud800", "not valid Unicode"),
    ],
)
def test_refused_with_a_sentence(name, why):
    with pytest.raises(ValueError, match=why) as caught:
        safe_name(name)
    message = str(caught.value)
    assert message.isprintable()
    assert message.endswith(".")
    assert len(message) < 250
    assert type(caught.value) is ValueError


PARTS = st.one_of(st.sampled_from(["..", ".", "", "a", "-x", "\0", "x" * 255, "\udcff"]), st.text(ANY, max_size=8))
NAMES = st.one_of(st.lists(PARTS, max_size=6).map("/".join), st.text(ANY, max_size=40))


@given(name=NAMES)
def test_safe_names_are_safe_and_stable(name: str):
    try:
        safe = safe_name(name)
    except ValueError:
        return
    parts = safe.split("/")
    assert not {"", ".", ".."} & set(parts)
    assert len(safe.encode()) <= MAX_NAME_BYTES
    assert safe_name(safe) == safe
