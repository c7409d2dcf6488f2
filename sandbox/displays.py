"""What code has shown: figures, images, tables and other MIME bundles. They are untrusted, and never interpreted here."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TEXT = "text/plain"
IMAGES = {"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp"}
"""Types of images that a notebook or a model can be shown, with the ends of their files' names."""
FIGURES = {
    **IMAGES,
    "image/svg+xml": ".svg",
    "application/pdf": ".pdf",
    "application/vnd.plotly.v1+json": ".plotly.json",
}
DOCUMENTS = {"text/html": ".html", "text/markdown": ".md", "text/latex": ".tex", "application/json": ".json"}
_MAX_FRAME_HEIGHT = 600
# Code without network could otherwise send data with the requests that a browser makes for what HTML refers to.
_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; media-src data:; font-src data:; '
    "style-src 'unsafe-inline'\">"
)
# The policy does not prevent that browsers look up or connect to hosts that these name.
_CONNECTING = re.compile(r"<(?=(?:base|embed|frame|iframe|link|meta|object|portal)(?![a-z0-9-]))", re.IGNORECASE)


@dataclass(frozen=True)
class Display:
    """Something that code has shown, in one or more forms.

    Args:
        name: Its name: that of its file, such as `figure-1.png`, or `display-2` where no file is made of it.
        data: Its forms by MIME type: images and PDF as `bytes`, JSON types as what they contain, all others as `str`.
        metadata: What the code has said about the forms.
        path: Its file on the host, or None.
    """

    name: str
    data: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    path: Path | None = None

    @property
    def text(self) -> str:
        """Its `text/plain`, empty if it has none."""
        return str(self.data.get(TEXT, ""))

    @property
    def image(self) -> tuple[bytes, str] | None:
        """The first image among its forms, with its MIME type, or None. It is not decoded: its bytes are untrusted."""
        return next(((self.data[kind], kind) for kind in IMAGES if kind in self.data), None)

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
            return f'<img alt="{html.escape(self.name)}" src="data:{kind};base64,{encoded}">'
        if "text/html" in self.data:
            height = min(_MAX_FRAME_HEIGHT, 60 + 24 * str(self.data["text/html"]).count("<tr"))
            source = html.escape(_POLICY + _CONNECTING.sub("&lt;", str(self.data["text/html"])))
            style = f"border:0;width:100%;height:{height}px"
            return f'<iframe sandbox="" title="{html.escape(self.name)}" style="{style}" srcdoc="{source}"></iframe>'
        return f"<pre>{html.escape(self.text or self.name)}</pre>"


def file_type(data: Mapping[str, Any]) -> str | None:
    """Return the MIME type whose value goes into a display's file.

    Args:
        data: The display's forms.
    """
    return next((kind for kind in (*FIGURES, *DOCUMENTS) if kind in data), None)


def file_name(kind: str, number: int) -> str:
    """Return the name of a display's file.

    Args:
        kind: What `file_type` has returned.
        number: The number that the runner has given to it.
    """
    return f"figure-{number}{FIGURES[kind]}" if kind in FIGURES else f"display-{number}{DOCUMENTS[kind]}"
