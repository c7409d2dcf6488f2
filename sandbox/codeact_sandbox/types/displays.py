"""Displays of code: figures, images, tables and other MIME bundles. They are untrusted, and never interpreted here."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codeact_sandbox.types.filenames import printable_text
from codeact_sandbox.types.text import apply_carriage_returns, check_nesting

TEXT = "text/plain"
# Types of images that a notebook or a model can be shown, with the ends of their files' names.
IMAGES = {"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp"}
FIGURES = {
    **IMAGES,
    "image/svg+xml": ".svg",
    "application/pdf": ".pdf",
    "application/vnd.plotly.v1+json": ".plotly.json",
}
DOCUMENTS = {"text/html": ".html", "text/markdown": ".md", "text/latex": ".tex", "application/json": ".json"}
MAX_TEXT_CHARS = 100_000
MAX_NESTING = 100
# Bytes of JSON that are parsed although the value was not requested.
SMALL_JSON = 64 * 1024
# HTML of a block's displays: base64 makes the most that they can have a third longer.
MAX_SHOWN_BYTES = 24_000_000
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_MAX_FRAME_HEIGHT = 600
# Code without network could otherwise send data with the requests that a browser makes for what HTML refers to.
_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; media-src data:; font-src data:; '
    "style-src 'unsafe-inline'\">"
)
# A frame does not know the page's colours: dark text needs a light background on dark pages.
_STYLE = (
    "<style>body{margin:4px;font:13px sans-serif;color:#111;background:#fff}"
    "table{border-collapse:collapse}td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #ddd}</style>"
)
# The policy does not prevent that browsers look up or connect to hosts that these name.
_CONNECTING = re.compile(r"<(?=(?:base|embed|frame|iframe|link|meta|object|portal)(?![a-z0-9-]))", re.IGNORECASE)


class Forms(Mapping[str, Any]):
    """The forms of a display by MIME type. JSON is parsed when it is looked up: other threads of this program wait meanwhile.

    Args:
        raw: The forms as they came: JSON types as `bytes`.
    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw

    def __getitem__(self, kind: str) -> Any:
        form = self.raw[kind]
        return _parsed(form) if is_json(kind) and isinstance(form, bytes) else form

    def __contains__(self, kind: object) -> bool:
        return kind in self.raw

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.raw)})"


def _parsed(text: bytes) -> Any:
    try:
        check_nesting(text, MAX_NESTING)
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


@dataclass(frozen=True)
class Display:
    """Something that code has shown, in one or more forms.

    Args:
        name: Its name: that of its file, such as `figure-1.png`, or `display-2` where no file is made of it.
        data: Its forms by MIME type: images and PDF as `bytes`, JSON types as what they contain (parsed at each access;
            None for what is not JSON), all others as `str`.
        metadata: What the code has said about the forms.
        path: Its file on the host, or None.
        output_line: The line that stands for it in the output, without the line end; empty if there is none.
        offset: Where in the output it was shown, and its line begins, in characters; None if the output was cut there.
    """

    name: str
    data: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None
    output_line: str = ""
    offset: int | None = None

    @property
    def text(self) -> str:
        return str(self.data.get(TEXT, ""))

    @property
    def image(self) -> tuple[bytes, str] | None:
        """The first image among its forms, with its MIME type, or None. It is not decoded: its bytes are untrusted."""
        return next(((self.data[kind], kind) for kind in IMAGES if kind in self.data), None)

    @property
    def forms(self) -> dict[str, Any]:
        """Its forms as in `data`, but JSON of more than 64 KiB as the `bytes` of its text, because nothing large is parsed."""
        raw = self.data.raw if isinstance(self.data, Forms) else self.data
        return {
            kind: form if isinstance(form, bytes) and len(form) > SMALL_JSON else self.data[kind]
            for kind, form in raw.items()
        }

    def to_html(self) -> str:
        """Return HTML that shows it without running or loading anything of it.

        In images and sandboxed frames no script runs, and the frames have a policy by which browsers load nothing from a network.
        """
        kind, source = next(
            ((kind, self.data[kind]) for kind in (*IMAGES, "image/svg+xml") if kind in self.data), ("", b"")
        )
        if kind:
            data = source if isinstance(source, bytes) else str(source).encode("utf-8", "replace")
            encoded = base64.b64encode(data).decode("ascii")
            return f'<img alt="{escaped(self.name)}" style="max-width:100%" src="data:{kind};base64,{encoded}">'
        if "text/html" in self.data:
            height = min(_MAX_FRAME_HEIGHT, 60 + 24 * str(self.data["text/html"]).count("<tr"))
            source = html.escape(_POLICY + _STYLE + _CONNECTING.sub("&lt;", str(self.data["text/html"])))
            style = f"border:0;width:100%;height:{height}px"
            return f'<iframe sandbox="" title="{escaped(self.name)}" style="{style}" srcdoc="{source}"></iframe>'
        return f"<pre>{escaped(self.text or self.name)}</pre>"


def interleave(output: str, displays: Sequence[Display]) -> list[str | Display]:
    """Return what code has printed and shown in its order, with displays instead of the lines that stand for them."""
    pieces: list[str | Display] = []
    left: list[str | Display] = []
    at = 0
    for display in displays:
        line = f"{display.output_line}\n" if display.output_line else ""
        if display.offset is None or display.offset < at or not output.startswith(line, display.offset):
            left.append(display)
            continue
        pieces += [output[at : display.offset], display]
        at = display.offset + len(line)
    return [piece for piece in [*pieces, output[at:], *left] if piece]


def output_to_html(output: str, displays: Sequence[Display], max_chars: int = MAX_TEXT_CHARS) -> list[str]:
    """Return HTML for what code has printed and shown, in its order, without anything that could run or be loaded."""
    rows, left_bytes = [], MAX_SHOWN_BYTES
    pieces = interleave(output, displays)
    texts = [piece for piece in pieces if isinstance(piece, str)]
    share = max_chars if sum(map(len, texts)) <= max_chars else max_chars // len(texts)
    for piece in pieces:
        if isinstance(piece, Display):
            row = piece.to_html()
            left_bytes -= len(row)
            rows.append(row if left_bytes >= 0 else f"<pre>{escaped(piece.name)}: too large to be shown here</pre>")
        elif text := cut(piece, share).rstrip("\n"):
            rows.append(f'<pre class="codeact-output">{escaped(text)}</pre>')
    return rows


def cut(text: str, max_chars: int) -> str:
    """Return text of limited length: its head and its tail, and between them how much is left out."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n[{len(text) - 2 * half:,} characters are not shown here]\n{text[-half:]}"


def escaped(text: str) -> str:
    """Return text as HTML: control and invisible characters are visible, progress bars are in their last state."""
    return html.escape(printable_text(apply_carriage_returns(_COLORS.sub("", text))))


def is_json(kind: str) -> bool:
    return kind == "application/json" or kind.endswith("+json")


def file_type(data: Mapping[str, Any]) -> str | None:
    return next((kind for kind in (*FIGURES, *DOCUMENTS) if kind in data), None)


def file_name(kind: str, number: int) -> str:
    return f"figure-{number}{FIGURES[kind]}" if kind in FIGURES else f"display-{number}{DOCUMENTS[kind]}"
