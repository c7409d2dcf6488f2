"""Labels, commands, and the names of blocks' files."""

import hashlib
from typing import Any

import pytest
from autogen_ext.code_executors._common import get_file_name_from_content
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor
from hypothesis import given
from hypothesis import strategies as st

from codeact_sandbox.host.blocks import default_filename, filename_comment
from codeact_sandbox.types.filenames import safe_name
from codeact_sandbox.types.languages import LANGUAGES, find_language
from tests.texts import ANY

PYTHON, SH = LANGUAGES["python"], LANGUAGES["sh"]


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("python", "python"),
        ("Python", "python"),
        (" PY ", "python"),
        ("python3", "python"),
        ("python3.12", "python"),
        ("ipython", "python"),
        ("IPython3", "python"),
        ("shell", "sh"),
        ("sh", "sh"),
        ("BASH", "bash"),
        ("js", "javascript"),
        ("node", "javascript"),
        ("ts", "typescript"),
        ("R", "r"),
        ("Rscript", "r"),
        ("pwsh", "powershell"),
        ("ps1", "powershell"),
        ("golang", "go"),
    ],
)
def test_labels(label: Any, name: Any) -> None:
    assert find_language(label) is LANGUAGES[name]


@pytest.mark.parametrize(
    "label", ["", " ", "python2", "python2.7", "python3.", "console", "output", "c", "json", "py thon"]
)
def test_unknown_labels(label: Any) -> None:
    assert find_language(label) is None


def test_everything_that_autogen_supports_is_known():
    assert all(find_language(label) for label in DockerCommandLineCodeExecutor.SUPPORTED_LANGUAGES)


class TestFilenameComment:
    @pytest.mark.parametrize(
        ("language", "code", "name"),
        [
            ("python", "# filename: a.py\nprint(1)", "a.py"),
            ("python", "# filename: a.py\r\nprint(1)", "a.py"),
            ("python", "#filename:a.py", "a.py"),
            ("python", "# filename: dir/with space.py  \n", "dir/with space.py"),
            ("python", "# filename: a:b.py\n", "a:b.py"),
            ("python", '# filename: "a.py"\n', "a.py"),
            ("python", "# filename: `a b/c.py` (a remark)\n", "a b/c.py"),
            ("python", "# filename: **a.py**\n", "a.py"),
            ("python", "# filename: a.py (you can choose your own filename)\n", "a.py"),
            ("python", "# filename: a.py - run it with python a.py\n", "a.py"),
            ("python", "# filename: a.py, saved in the workspace\n", "a.py"),
            ("python", "# filename: a.py  # keep me\n", "a.py"),
            ("python", "# filename: report v1.2 final.py\n", "report v1.2 final.py"),
            ("python", "# filename: notes.old copy.py\n", "notes.old copy.py"),
            ("sh", "# filename: it's.sh\n", "it's.sh"),
            ("python", "# filename: ../../x\n", "../../x"),
            ("python", "# filename:\nx", ""),
            ("python", "#!/usr/bin/env python3\n# filename: a.py\n", "a.py"),
            ("sh", "#!/bin/sh\n# filename: a.sh\n", "a.sh"),
            ("javascript", "// filename: a.js\n", "a.js"),
            ("typescript", "/* filename: a.ts */\n", "a.ts"),
            ("lua", "-- filename: a.lua\n", "a.lua"),
            ("php", "<?php\n// filename: a.php\n", "a.php"),
            ("php", "<!-- filename: a.php -->\n<?php", "a.php"),
            ("powershell", "<# filename: a.ps1 #>\n", "a.ps1"),
        ],
    )
    def test_filename_comment_is_found(self, language: Any, code: Any, name: Any) -> None:
        assert filename_comment(code, LANGUAGES[language]) == name

    @pytest.mark.parametrize(
        ("language", "code"),
        [
            ("python", ""),
            ("python", "print(1)\n# filename: a.py"),
            ("python", "\n# filename: a.py"),
            ("python", "x = 1\n\n# filename: a.py"),
            ("python", "// filename: a.py"),
            ("python", "# the filename: a.py"),
            ("python", "# filenames: a.py"),
            ("python", "print('# filename: a.py')"),
            ("javascript", "# filename: a.js"),
            ("lua", "# filename: a.lua"),
        ],
    )
    def test_other_comments_are_no_filename(self, language: Any, code: Any) -> None:
        assert filename_comment(code, LANGUAGES[language]) is None

    # Without spaces: AutoGen takes what follows one as a part of the name, and we as a remark.
    @given(st.text(alphabet="abc.#:/\n", max_size=30).map("# filename: ".__add__))
    def test_where_autogen_takes_a_name_we_take_the_same(self, tmp_path_factory: pytest.TempPathFactory, code: str):
        """AutoGen cuts the name at a second colon, and resolves `.` and `..` in it."""
        root = tmp_path_factory.getbasetemp()
        name = filename_comment(code, PYTHON)
        assert name is not None
        if ":" in name:
            return
        try:
            safe = safe_name(name)
        except ValueError:
            return
        assert get_file_name_from_content(code, root) == safe


class TestDefaultFilename:
    def test_as_autogen_names_it(self):
        digest = hashlib.sha256("print('ü')".encode()).hexdigest()
        assert default_filename("print('ü')", PYTHON) == f"tmp_code_{digest}.py"
        assert default_filename("print('ü')", SH) == f"tmp_code_{digest}.sh"

    @given(st.text(ANY) | st.text(alphabet="\ud800\udcffa"))
    def test_any_code_has_a_safe_name(self, code: str):
        name = default_filename(code, PYTHON)
        assert safe_name(name) == name
