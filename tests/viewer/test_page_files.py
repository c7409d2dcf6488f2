"""The files of the page: what they must not contain."""

import re
from collections import Counter

from autogen_codeact.viewer.static import PAGE, SCRIPT_TAG, SCRIPTS, STYLE_TAG, page_html, page_script, page_style

PARTS = sorted(PAGE.glob("*.js"))
# Text of models and code must never be parsed as a part of the page, and text must never become a program.
FORBIDDEN = re.compile(
    r"innerHTML|insertAdjacentHTML|createContextualFragment|setHTML|parseHTMLUnsafe|document\.write|\beval\b|new Function"
    r"|import\(|outerHTML\s*=[^=]|javascript:|setTimeout\(\s*[\"'`]"
)


def test_the_script_has_all_parts_with_different_names_and_can_be_in_a_file():
    assert {file.stem for file in PARTS} == set(SCRIPTS)
    declared = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", page_script(), re.MULTILINE)
    assert [name for name, number in Counter(declared).items() if number > 1] == []
    assert not re.search(r"</script|<!--|^import|^export", page_script(), re.IGNORECASE | re.MULTILINE)
    assert not re.search(r"</style|url\(|@import", page_style(), re.IGNORECASE)
    assert page_html().count(SCRIPT_TAG) == page_html().count(STYLE_TAG) == 1
    for file in PARTS:
        assert file.read_text().count("\n") < 500, file.name


def test_page_never_parses_text_as_html_or_code():
    for file in [*PARTS, PAGE / "index.html"]:
        assert FORBIDDEN.findall(file.read_text()) == [], file.name


def test_only_the_part_about_frames_makes_documents():
    users = {file.name for file in PARTS if re.search(r"srcdoc|DOMParser", file.read_text())}
    assert users == {"frames.js"}


def test_page_has_no_inline_script_and_names_no_other_server():
    index = page_html()
    assert re.findall(r"<script[^>]*>([^<]*)</script>", index) == [""]
    assert not re.search(r"\son\w+=|\sstyle=", index)
    for file in [*PARTS, *PAGE.glob("*.css"), PAGE / "index.html"]:
        addresses = set(re.findall(r"https?://[\w.]+", file.read_text()))
        assert addresses <= {"http://www.w3.org"}, file.name
