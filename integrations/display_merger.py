"""Merges the output of a block and its displays, which arrive separately: each display replaces its line in the output."""

from __future__ import annotations

from autogen_codeact.sandbox.types.displays import Display

_LATE_CHARS = 8_000
"""Characters of output after which a display is shown although its line has not arrived."""
_RECENT_CHARS = 8_000


class DisplayMerger:
    """Merges the output and the displays of a block. A display usually arrives before its line in the output."""

    def __init__(self) -> None:
        self._waiting: list[Display] = []
        self._late = 0
        """Characters of output since the first of them arrived."""
        self._held = ""
        """Text that may be the beginning of its line."""
        self._recent = "\n"
        """The end of the output so far."""
        self.misplaced = False
        """Whether the line of a display was shown in addition to the display."""

    def add_display(self, display: Display) -> list[str | Display]:
        """Take a display, and return what is to be shown now."""
        if f"\n{display.output_line}\n" in self._recent:
            self._recent, self.misplaced = "\n", True
            return [display]
        self._waiting.append(display)
        return []

    def add_text(self, text: str) -> list[str | Display]:
        """Take text, and return what is to be shown now."""
        text, self._held = self._held + text, ""
        pieces: list[str | Display] = []
        while self._waiting:
            line = f"{self._waiting[0].output_line}\n"
            begins_line = self._recent.endswith("\n")
            at = 0 if begins_line and text.startswith(line) else text.find(f"\n{line}") + 1
            if at == 0 and not (begins_line and text.startswith(line)):
                text, self._held = _split(text, line, begins_line=begins_line)
                self._late += len(text)
                if self._late <= _LATE_CHARS:
                    break
                pieces += [self._remember(text), self._waiting.pop(0)]
                text, self._held, self._late = self._held, "", 0
                continue
            pieces += [self._remember(text[:at]), self._waiting.pop(0)]
            text, self._late, self._recent = text[at + len(line) :], 0, "\n"
        return [piece for piece in [*pieces, self._remember(text)] if piece]

    def rest(self) -> list[str | Display]:
        """Return what is left at the end of the block."""
        held, self._held = self._held, ""
        waiting, self._waiting = self._waiting, []
        return [*([self._remember(held)] if held else []), *waiting]

    def _remember(self, text: str) -> str:
        self._recent = (self._recent + text)[-_RECENT_CHARS:]
        return text


def _split(text: str, line: str, *, begins_line: bool) -> tuple[str, str]:
    """Split text where its end may be the beginning of a given line."""
    starts = [0] if begins_line else []
    at = text.find("\n", max(len(text) - len(line), 0))
    while at >= 0:
        starts.append(at + 1)
        at = text.find("\n", at + 1)
    for start in starts:
        if len(text) - start < len(line) and line.startswith(text[start:]):
            return text[:start], text[start:]
    return text, ""
