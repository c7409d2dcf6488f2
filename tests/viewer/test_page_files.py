"""The files of the page: what they must not contain."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "viewer" / "page"
MODULES = sorted(PAGE.glob("*.js"))
# Text of models and code must never be parsed as a part of the page, and text must never become a program.
FORBIDDEN = re.compile(
    r"innerHTML|insertAdjacentHTML|createContextualFragment|setHTML|parseHTMLUnsafe|document\.write|\beval\b|new Function"
    r"|import\(|outerHTML\s*=[^=]|javascript:|setTimeout\(\s*[\"'`]"
)


def test_modules_are_found():
    assert {"app.js", "data.js", "list.js", "run.js", "step.js", "virtual.js"} <= {file.name for file in MODULES}


@pytest.mark.parametrize("file", [*MODULES, PAGE / "index.html"], ids=lambda file: file.name)
def test_page_never_parses_text_as_html_or_code(file: Path):
    assert FORBIDDEN.findall(file.read_text()) == []


def test_only_the_module_of_frames_makes_documents():
    users = {file.name for file in MODULES if re.search(r"srcdoc|DOMParser", file.read_text())}

    assert users == {"frames.js"}


def test_page_has_no_inline_script_and_names_no_other_server():
    index = (PAGE / "index.html").read_text()

    assert re.findall(r"<script[^>]*>([^<]*)</script>", index) == [""]
    assert not re.search(r"\son\w+=|\sstyle=", index)
    for file in [*PAGE.glob("*.js"), *PAGE.glob("*.css"), PAGE / "index.html"]:
        addresses = set(re.findall(r"https?://[\w.]+", file.read_text()))
        assert addresses <= {"http://www.w3.org"}, file.name


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.name)
def test_module_is_short_and_its_imports_can_be_put_into_one_file(file: Path):
    text = file.read_text()

    assert text.count("\n") < 500
    for line in re.findall(r"^import .*$", text, re.MULTILINE):
        assert re.fullmatch(r'import (\{ [\w, ]+ \} from )?"\./\w+\.js";', line), line
    for line in re.findall(r"^export .*$", text, re.MULTILINE):
        assert re.match(r"export (async function|function|class|const) \w+", line), line
