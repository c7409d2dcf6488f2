"""The files of the viewer's page."""

from __future__ import annotations

from functools import cache
from pathlib import Path

PAGE = Path(__file__).parent / "page"
"""The folder of the page's files."""
SCRIPTS = (
    *("dom", "text", "markdown", "frames", "data", "block", "step", "shell", "parts", "find", "questions"),
    *("live", "run", "list", "batch", "app"),
)
"""The parts of the page's only script, which share one scope, in the order in which they run."""
NONCE = "__NONCE__"
"""Stands in `index.html` for a random text of each answer or file."""
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SCRIPT_TAG = '<script defer src="__BASE__/page/page.js"></script>\n'
STYLE_TAG = f'<link rel="stylesheet" href="__BASE__/page/style.css" nonce="{NONCE}">\n'


@cache
def page_script() -> str:
    return '"use strict";\n' + "".join((PAGE / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)


@cache
def page_style() -> str:
    return (PAGE / "style.css").read_text(encoding="utf-8")


@cache
def page_html() -> str:
    """Return the page, which loads its script and its style sheet."""
    return (PAGE / "index.html").read_text(encoding="utf-8")
