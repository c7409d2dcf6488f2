"""Finds the code blocks in the text of a model.

The text is read as CommonMark. Where models deviate from that:

- A fence may be indented by any amount, and code under a list marker by less than the list requires: models miscount
  columns. Code is dedented by the column of its opening fence, or by that of its first line if it is further
  left. Indented code and HTML, comments apart, hide no fence.
- A fence at the end of a code line, as in ``print(1)`` + three backticks, closes the block when no fence on a line of
  its own closes it before the next fence or the end.
- A closing fence may have ``<end_code>`` behind it, as smolagents instructs its models to write.
- A labelled fence inside a block opens a nested one when the fences then balance: a ``markdown`` block keeps the
  ``python`` examples that it shows, and code keeps the fences in its strings. The inner ones are not reported.
- When they do not balance, the outer block was never closed: it ends before the inner fence, incomplete, and reading
  goes on with the inner one. Output and documents (`OUTPUT_LABELS`, `DOCUMENT_LABELS`) take all up to the end
  instead, because what they quote must not run.
- A fence in a block quote is part of a quotation, and no block.
- ``<execute>`` tags hold code as it is, or one fenced block. A tag in backticks or in the middle of a sentence is
  only mentioned.
- What a model thinks, in tags such as ``<think>``, is not looked at. The first opening tag may be missing: some prompts end
  with it.
- A fence closes no block of which the code can't end there: inside a here-document, or a string. Reading goes on to the first
  fence where it can; a here-document that never ends makes its block incomplete.

Markdown-it-py is the reference in the tests and not used here: on model text it is up to eight times slower, on list
items over three hundred times. Here every character is read a bounded number of times.
"""

import re
import sys
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Literal

from autogen_codeact.agents.unfinished import unfinished_code
from codeact_sandbox.types.languages import LANGUAGES

_OUTPUT = """
console console-output error execution-result execution_result log logs out output plain plaintext result results
shell-session shellsession stderr stdout terminal text tool-output tool_output traceback txt
"""
OUTPUT_LABELS = frozenset(_OUTPUT.split())
"""Labels (normalised) of blocks that show output: reported under that label, never run."""

DOCUMENT_LABELS = frozenset(("markdown", "mdx", "rst"))
"""Labels (normalised) of blocks of prose, which may show code that must not run."""

_ALIASES = {"md": "markdown"}
_LABEL = re.compile(r"[\s{.=]*([^\s{},:;=\"'()]*)")

_LABEL_START = re.compile(r"[\w{.]")

_TAGS = {"<execute>": "python", "<execute_bash>": "bash", "<execute_ipython>": "python", "<execute_python>": "python"}
# Each alternative begins with a character and not with a repetition: `re` then looks for these characters only.
_THINKS = r"(?:\w{1,20}:)?(?:think|thinking|thoughts?|reason|reasoning|reflect|reflection|monologue|scratchpad)"
_THOUGHT = re.compile(rf"<({_THINKS})(?:[ \t][^<>\n]{{0,100}})?>|\[THINK\]|◁think▷", re.IGNORECASE)
_THOUGHT_ENDS = re.compile(rf"(?:</{_THINKS}>|\[/THINK\]|◁/think▷)[ \t]*$", re.IGNORECASE | re.MULTILINE)
_THOUGHT_TAG = re.compile(rf"{_THOUGHT.pattern}|{_THOUGHT_ENDS.pattern}", re.IGNORECASE | re.MULTILINE)
_OUTSIDE = re.compile("```+|~~~+|<!--|" + "|".join(_TAGS) + "|" + _THOUGHT.pattern, re.IGNORECASE)
_RUNS = {"`": re.compile("`{3,}"), "~": re.compile("~{3,}")}
# smolagents instructs models to write this behind a closing fence, as a stop sequence.
_STOP = "<end_code>"
_CONTAINERS = re.compile(r"(?:[ \t]|(?:[-+*]|\d{1,9}[.)])[ \t])*+")
_BLANKS = re.compile(r"[ \t]*+")
_BLANK_LINES = re.compile(r"(?:[ \t]*+\n)*+")
# Each costs one pass over the code.
_MOST_TRIES = 20


@dataclass(frozen=True)
class ExtractedBlock:
    """A block of code in a text."""

    language: str  # normalised; "" without a label
    code: str  # with "\\n" as line endings
    line: int  # of its first line in the text, counted from 1
    complete: bool  # False for a fence or tag that was never closed: a truncated answer, which must not be run
    tagged: bool = field(default=False, compare=False)
    fence: str = field(default="", compare=False)  # its character; "" for a tag
    end: int = field(default=-1, compare=False)  # where its closing fence or tag ends, with "\\n" as line endings


def extract_code_blocks(text: str) -> list[ExtractedBlock]:
    """Find every fenced block and every ``<execute>`` tag of a text, in the order written."""
    return _scan(text).blocks


def without_thoughts(text: str) -> str:
    """Return a text of a model without what it thinks in tags such as ``<think>``."""
    return split_thoughts(text)[1]


def split_thoughts(text: str, *, cut_off: bool = False) -> tuple[str, str]:
    """Return what a model thinks in tags, and the rest; a tag that a `cut_off` text begins with may have no end."""
    scanner = _scan(text)
    if not scanner.thoughts:
        opened = _THOUGHT.match(text.lstrip()) if cut_off else None
        return (text.lstrip()[opened.end() :], "") if opened else ("", text)
    at, thoughts, kept = 0, [], []
    for start, end in scanner.thoughts:
        kept.append(scanner.text[at:start])
        thoughts.append(_THOUGHT_TAG.sub("", scanner.text[start:end]).strip())
        at = end
    return "\n".join(thoughts), "".join([*kept, scanner.text[at:]]).strip()


def _scan(text: str) -> "_Scanner":
    scanner = _Scanner(text.replace("\r\n", "\n").replace("\r", "\n"))
    at = scanner.skip_unopened_thought()
    while match := _OUTSIDE.search(scanner.text, at):
        at = scanner.take(match)
    return scanner


def normalise_language(label: str) -> str:
    """Return the name that this package uses for a language."""
    match = _LABEL.match(label.lower())
    name = match[1] if match else ""
    known = LANGUAGES.get(name)
    return known.name if known is not None else _ALIASES.get(name, name)


@dataclass(slots=True)
class _Fence:
    """An opening fence and its block."""

    mark: str
    size: int
    info: str
    start: int  # where its line begins
    body: int  # where its content begins
    indent: int  # columns before the line's first character
    columns: int  # columns before the fence itself, a list marker included
    glued: int | None = None
    end: int = -1
    after: int = -1
    children: list["_Fence"] = field(default_factory=list)

    def role_of(self, line: "_Fence") -> Literal["end", "nested"] | None:
        """Return what a later fence line is in this block; None if it is too short or too far to the right to matter."""
        if line.size < self.size or line.indent > self.columns + 3:
            return None
        if line.info:
            return "nested"
        return "end" if line.columns == line.indent else None


@dataclass(slots=True)
class _Scanner:
    """One pass over one text."""

    text: str
    blocks: list[ExtractedBlock] = field(default_factory=list)
    seen: int = 0
    line_start: int = 0
    line_indent: int = -1
    tried: int = -1
    counted: tuple[int, int] = (0, 1)
    found: dict[str, int] = field(default_factory=dict)
    thoughts: list[tuple[int, int]] = field(default_factory=list)

    def take(self, match: re.Match[str]) -> int:
        """Read what begins at a match of `_OUTSIDE`, and return where to read on."""
        newline = self.text.rfind("\n", self.seen, match.start())
        self.seen = match.start()
        if newline >= 0 or self.line_indent < 0:
            self.line_start = newline + 1
            self.line_indent = skip(_BLANKS, self.text, self.line_start)
        if match[0] == "<!--":
            return self._comment(match)
        if thought := _THOUGHT.fullmatch(match[0]):
            return self._thought(match, thought[1])
        return self._tag(match) if match[0][0] == "<" else self._fence(match)

    def skip_unopened_thought(self) -> int:
        """Return where the text goes on behind the last end of a thought that no tag has opened."""
        opened = _THOUGHT.search(self.text)
        end = 0
        for match in _THOUGHT_ENDS.finditer(self.text, 0, opened.start() if opened else len(self.text)):
            end = match.end()
        if end:
            self.thoughts.append((0, end))
        return end

    def _thought(self, match: re.Match[str], name: str | None) -> int:
        start, end = match.span()
        close = f"</{name}>" if name else "[/THINK]" if match[0][0] == "[" else "◁/think▷"
        closed = self._find(close, end)
        if closed < 0 or self.text[start - 1 : start] in ("`", "'", '"'):
            return end
        after = closed + len(close)
        begins = start == self.line_indent or (self.thoughts and not self.text[self.thoughts[-1][1] : start].strip())
        if not begins and not self._is_line_end(skip(_BLANKS, self.text, after)):
            return end  # a sentence about the tags
        self.thoughts.append((start, after))
        return after

    def _comment(self, match: re.Match[str]) -> int:
        if match.start() != self.line_indent:
            return match.end()
        end = self._find("-->", match.end())
        return match.end() if end < 0 else end + 3

    def _find(self, token: str, at: int) -> int:
        """Find the next `token`; one already found further on, or found missing, is not looked for again."""
        known = self.found.get(token, 0)
        if 0 <= known < at or token not in self.found:
            known = self.found[token] = self.text.find(token, at)
        return known

    def _line(self, at: int) -> int:
        seen, line = self.counted
        self.counted = (at, line + self.text.count("\n", seen, at))
        return self.counted[1]

    # Tags

    def _tag(self, match: re.Match[str]) -> int:
        start, end = match.span()
        if self.text[start - 1 : start] == "`" and self.text[end : end + 1] == "`":
            return end
        close = self._find("</" + match[0][1:], end)
        limit = close if close >= 0 else len(self.text)
        spoken = self._is_mentioned(start, end)
        again = self._next_tag(match[0], end, limit, anywhere=spoken)
        if again < 0 <= close:
            self._emit_tag(match, close, complete=True)
            return close + len(match[0]) + 1
        if spoken:
            return end
        stop = limit if again < 0 else again
        self._emit_tag(match, stop, complete=False)
        return stop

    def _is_mentioned(self, start: int, end: int) -> bool:
        """Return whether there is text before and after a tag on its line, as in a sentence about tags."""
        if start == self.line_indent:
            return False
        before = self.text[self._back_over_blanks(start) - 1]
        return before != ">" and not self._is_line_end(skip(_BLANKS, self.text, end))

    def _is_line_end(self, at: int) -> bool:
        return self.text[at : at + 1] in ("", "\n")

    def _back_over_blanks(self, at: int) -> int:
        while at and self.text[at - 1] in " \t":
            at -= 1
        return at

    def _next_tag(self, tag: str, at: int, limit: int, *, anywhere: bool) -> int:
        """Find `tag` again before `limit`, at the beginning of a line, because a string in the code may contain it."""
        found = self.text.find(tag, at, limit)
        while found >= 0 and not anywhere:
            before = self._back_over_blanks(found)
            if self.text[before - 1] == "\n":
                return found
            found = self.text.find(tag, found + 1, limit)
        return found

    def _emit_tag(self, match: re.Match[str], stop: int, *, complete: bool) -> None:
        at = skip(_BLANKS, self.text, match.end())
        head = "" if self._is_line_end(at) else self.text[at : _next_line(self.text, at, stop)]
        if not head:
            at = min(skip(_BLANK_LINES, self.text, at), stop)
        indent = self.text[self.line_start : match.start()] if match.start() == self.line_indent else ""
        code = (head + _dedent(self.text[at + len(head) : stop], _width(indent))).rstrip(" \t\n")
        language, above = _TAGS[match[0].lower()], self._line(at)
        if inner := _only_fence(code):
            language, code, above = inner.language or language, inner.code, above + inner.line - 1
        end = stop + len(match[0]) + 1 if complete else stop
        self.blocks.append(ExtractedBlock(language, code, above, complete, tagged=True, end=end))

    # Fences

    def _fence(self, match: re.Match[str]) -> int:
        if self.tried == self.line_start:
            return match.end()
        self.tried = self.line_start
        fence = _opening(self.text, self.line_start, match)
        return self._block(fence) if fence is not None else match.end()

    def _block(self, outer: _Fence) -> int:
        """Read from an opening fence to the end of its block, with the blocks that are nested in it."""
        stack, at = [outer], outer.body
        first, unfinished, tries = (-1, -1), None, 0
        while match := _RUNS[outer.mark].search(self.text, at):
            newline = self.text.rfind("\n", at, match.start())
            start = at if newline < 0 else newline + 1
            at = _next_line(self.text, match.end())
            _feed(self.text, stack, start, match)
            if stack:
                continue
            state = unfinished_code(normalise_language(outer.info), self.text[outer.body : outer.end])
            if state is None or tries == _MOST_TRIES:
                break
            if first[0] < 0:
                first, unfinished = (outer.end, outer.after), state
            stack, tries = [outer], tries + 1
        else:
            state = unfinished
        if first[0] >= 0 and state is not None:
            outer.end, outer.after = first
            self._emit_fence(outer, outer.end, complete=unfinished != "here-document")
            return outer.after
        if stack and stack[-1].glued is not None:
            _close(stack, stack[-1].glued, stack[-1].glued + stack[-1].size)
        if stack:
            self._emit_unclosed(stack)
            return len(self.text)
        self._emit_fence(outer, outer.end, complete=True)
        return outer.after

    def _emit_fence(self, fence: _Fence, end: int, *, complete: bool) -> None:
        code, language = self.text[fence.body : end], normalise_language(fence.info)
        code = _dedent(code, fence.columns) if fence.columns else code
        line, after = self._line(fence.body), fence.after if complete else end
        self.blocks.append(ExtractedBlock(language, code, line, complete, fence=fence.mark, end=after))

    def _emit_unclosed(self, stack: list[_Fence]) -> None:
        for fence, inner in zip_longest(stack, stack[1:]):
            nested = [*fence.children, inner] if inner else fence.children
            if not nested or normalise_language(fence.info) in OUTPUT_LABELS | DOCUMENT_LABELS:
                self._emit_fence(fence, len(self.text), complete=False)
                return
            self._emit_fence(fence, nested[0].start, complete=False)
            for child in fence.children:
                self._emit_fence(child, child.end, complete=True)


def _feed(text: str, stack: list[_Fence], start: int, match: re.Match[str]) -> None:
    """Close or nest blocks at a line with a run of fence characters."""
    line = _opening(text, start, match)
    if line is None:
        _note_glued(text, stack[-1], match)
    else:
        while stack and stack[-1].role_of(line) != "end" and stack[-1].glued is not None:
            _close(stack, stack[-1].glued, stack[-1].glued + stack[-1].size)
        role = stack[-1].role_of(line) if stack else None
        if role == "end":
            _close(stack, line.start, line.body)
        elif role == "nested":
            stack.append(line)


def _note_glued(text: str, fence: _Fence, match: re.Match[str]) -> None:
    """Remember the first line that ends in a fence; an even number of runs is a code span and not a fence."""
    line = text[match.start() : _next_line(text, match.end())].rstrip(" \t\n").removesuffix(_STOP)
    bare = line.rstrip(fence.mark)
    if fence.glued is None and len(line) - len(bare) >= fence.size and len(_RUNS[fence.mark].findall(line)) % 2:
        fence.glued = match.start() + len(bare)


def _close(stack: list[_Fence], end: int, after: int) -> None:
    fence = stack.pop()
    fence.end, fence.after = end, after
    fence.children.clear()
    if stack:
        stack[-1].children.append(fence)


def _opening(text: str, start: int, match: re.Match[str]) -> _Fence | None:
    """Read a line as an opening fence, if it can be one: only list marks before it, no backtick behind it."""
    if not _CONTAINERS.fullmatch(text, start, match.start()):
        return None
    mark, body = match[0][0], _next_line(text, match.end())
    info = text[match.end() : body].strip(" \t\n").removesuffix(_STOP)
    prefix = text[start : match.start()]
    columns = _width(prefix)
    # Tracebacks underline with tildes, far to the right and followed by carets.
    underline = mark == "~" and columns > 3 and info and not _LABEL_START.match(info)
    if underline or (mark == "`" and "`" in info):
        return None
    indent = _width(prefix[: skip(_BLANKS, prefix, 0)])
    return _Fence(mark, len(match[0]), info, start, body, indent, columns)


def _only_fence(code: str) -> ExtractedBlock | None:
    """Return the block that `code` consists of, if it is one fenced block and nothing else."""
    match = _OUTSIDE.match(code)
    if match is None or match[0][0] not in _RUNS:
        return None
    scanner = _Scanner(code)
    end = scanner.take(match)
    return scanner.blocks[0] if end == len(code) and len(scanner.blocks) == 1 else None


def _dedent(code: str, columns: int) -> str:
    """Remove up to `columns` columns of white space from every line, at most as many as the first line of code has."""
    first = skip(_BLANK_LINES, code, 0)
    if columns and first < len(code):
        # Code that stands further left than its fence would lose its own indentation, which is its meaning in Python.
        columns = min(columns, _width(code[first : skip(_BLANKS, code, first)]))
    return "\n".join(_unindent(line, columns) for line in code.split("\n")) if columns else code


def _unindent(line: str, columns: int) -> str:
    """Remove up to `columns` columns of white space from a line; the rest of a split tab stays as spaces."""
    column = at = 0
    while column < columns and line[at : at + 1] in (" ", "\t"):
        column += 4 - column % 4 if line[at] == "\t" else 1
        at += 1
    return " " * (column - columns) + line[at:]


def _width(blank: str) -> int:
    return len(blank.expandtabs(4))


def _next_line(text: str, at: int, limit: int = sys.maxsize) -> int:
    newline = text.find("\n", at, limit)
    return min(limit, len(text)) if newline < 0 else newline + 1


def skip(pattern: re.Pattern[str], text: str, at: int = 0) -> int:
    """Return where a pattern ends that begins at an offset; the offset if it does not begin there."""
    match = pattern.match(text, at)
    return match.end() if match else at
