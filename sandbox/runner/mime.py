"""MIME bundles: what of them is sent to the host, the file that the host makes, and the line in the output."""

import base64
import binascii
import json

TEXT = "text/plain"
MAX_TYPES = 20
MAX_TYPE_CHARS = 100
# Images and plots: the host makes a file of the first one that a bundle has.
IMAGES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
    "application/pdf": ".pdf",
    "application/vnd.plotly.v1+json": ".plotly.json",
}
# Others get a file only if the text does not say what is shown: `<IPython.core.display.HTML object>`.
DOCUMENTS = {"text/html": ".html", "text/markdown": ".md", "text/latex": ".tex", "application/json": ".json"}
# Figures that a browser draws: models see nothing of them.
INTERACTIVE = ("application/vnd.plotly.", "application/vnd.vega")
NO_IMAGE = (
    "<Interactive figure without an image: to look at it, draw it with matplotlib; to keep it, save it as HTML (%s)>"
)
BINARY = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")


def with_remark(data):
    """Return a bundle whose text says so if it is an interactive figure without an image."""
    kinds = [kind for kind in data if isinstance(kind, str)]
    is_plotly = any(kind.startswith(INTERACTIVE[0]) for kind in kinds)
    html = data.get("text/html")
    is_altair = any(kind.startswith(INTERACTIVE[1]) for kind in kinds) or (type(html) is str and "vegaEmbed" in html)
    if not (is_plotly or is_altair) or any(kind.startswith("image/") or kind == "application/pdf" for kind in kinds):
        return data
    return dict(data, **{TEXT: NO_IMAGE % ("`write_html`" if is_plotly else "`save`")})


def encoded(data, limit, text_limit):
    """Return what can be sent of a bundle."""
    parts, left_out = {}, []
    for name in sorted(data, key=lambda name: name != TEXT)[:MAX_TYPES]:
        if not isinstance(name, str) or len(name) > MAX_TYPE_CHARS or data[name] is None:
            continue
        try:
            parts[str(name)] = _as_bytes(name, data[name])
        except Exception as error:  # the value is whatever the code has given
            left_out.append("%s left out: %s" % (name, type(error).__name__))
    if len(parts.get(TEXT, b"")) > text_limit:
        parts[TEXT] = parts[TEXT][:text_limit].decode("utf-8", "ignore").encode() + b"[...]"
    while sum(map(len, parts.values())) > limit:
        largest = max((name for name in parts if name != TEXT), key=lambda name: len(parts[name]))
        left_out.append("%s left out: %d bytes, at most %d are kept" % (largest, len(parts.pop(largest)), limit))
    return parts, left_out


def _as_bytes(name, value):
    if name in BINARY:
        return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else _from_base64(value)
    if is_json(name):
        return json.dumps(value, allow_nan=False).encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = bytes(value).decode()
    elif isinstance(value, (list, tuple)):
        value = "".join(value)
    if not isinstance(value, str):
        raise TypeError("not text")
    return str.encode(value, "utf-8", "backslashreplace")  # its class may have overridden the method


def _from_base64(value):
    try:
        return base64.b64decode("".join(value) if isinstance(value, (list, tuple)) else value)
    except binascii.Error:
        raise ValueError("not base64") from None


def is_json(name):
    """Return whether values of a MIME type are JSON."""
    return name == "application/json" or name.endswith("+json")


def file_type(parts):
    """Return the MIME type of which the host makes a file, or None for no file."""
    for name in IMAGES:
        if name in parts:
            return name
    text = parts.get(TEXT, b"")
    if text and not _is_object(text):
        return None
    for name in DOCUMENTS:
        if name in parts:
            return name
    return None


def _is_object(text):
    return text.startswith(b"<") and text.endswith(b">") and b"\n" not in text and b" object" in text


def file_name(kind, number):
    """Return the name of that file."""
    return "figure-%d%s" % (number, IMAGES[kind]) if kind in IMAGES else "display-%d%s" % (number, DOCUMENTS[kind])


def line(text, name, left_out):
    """Return the line that stands for a display in the output."""
    remarks = "; ".join(([name] if name else []) + left_out)
    if not remarks:
        return text
    if text.startswith("<") and text.endswith(">") and "\n" not in text:
        return "%s: %s>" % (text[:-1], remarks)
    return "%s\n<%s>" % (text, remarks) if text else "<%s>" % remarks
