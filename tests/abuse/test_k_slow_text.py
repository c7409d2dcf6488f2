"""K1. Text that was made to be slow for a highlighter or a markdown reader takes no longer than ordinary text, in every face."""

import io
import sys
import time

import pytest

from autogen_codeact.cli.terminal import AnswerPrinter, Terminal
from codeact_sandbox.types.text import apply_carriage_returns
from tests.cases import case

ORDINARY = """# Title

Some *text* with `code`, [a link](http://x.y/z), and **bold** words that go on for a while.

- one item
- another

```python
for x in range(10):  # ten
    print(f"{x}", 'text', 1.5)
```

| a | b |
|---|---|
| 1 | 2 |

"""
CODE = {
    "bash": "<<-a",
    "python": '"\n ',
    "diff": "@",
    "javascript": "`${",
    "json": '{"',
    "sql": "/*'",
    "r": "%",
    "yaml": "- \n",
    "text": "\n",
}
MARKDOWN = [
    *("[", "[a](", "![", "[a][b", "[a\n", "[a]:\n", "*a **b ", "*_", "`a", "<a", "&a", "> ", "- ", "- a\n", "a\n=\n"),
    *("a\n", "a  \n", "|a|\n|-|\n", "a|b\n", "```\n", "~~~a\n", "\n", "\\", "\r", "a\r", "-\n", "\x1b[1;", "e\u0301"),
]
SIZES = (8_000, 64_000)


def seconds(face, text, enough=0.0):
    """Return the processor time that a face needs for a text; the best of three, or the first that is less than `enough`."""
    best = float("inf")
    for _ in range(3):
        begin = time.thread_time()
        face(text)
        best = min(best, time.thread_time() - begin)
        if best < enough:
            break
    return best


def attacks(size):
    """Yield texts of about a size, by name."""
    for language, seed in CODE.items():
        code = (seed * size)[:size]
        yield language, f"```{language}\n{code}\n```\n"
        short = "\n".join(code[at : at + 1_500] for at in range(0, size, 1_500))
        yield f"{language} in lines", f"```{language}\n{short}\n```\n"
    for seed in MARKDOWN:
        yield seed, (seed * size)[:size]
    columns = size // 8
    yield "a wide table", "|a" * columns + "|\n" + "|-" * columns + "|\n" + "|a\n" * (size // 6)
    yield "lazy quotes", ">" * 20 + "a\n" + ("b\n" * size)[:size]


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


def on_terminal(monkeypatch, show):
    """Return a face that shows a text on a terminal of its own."""

    def face(text):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", _Terminal())
            patch.setenv("TERM", "xterm-256color")
            patch.setenv("COLUMNS", "100")
            show(Terminal(), text)

    return face


def panel(terminal, text):
    terminal.panel("The model's answer", text, "cyan", markdown=True)


def plain_panel(terminal, text):
    terminal.panel("The model's answer is sent back", text, "cyan")


def line(terminal, text):
    terminal.line(text)


def output(terminal, text):
    terminal.output(text)
    terminal.end_output()


def chat(terminal, text):
    printer = AnswerPrinter(terminal)
    printer.add(text)
    printer.end()


# Case K1.
@pytest.mark.timeout(300)  # all cases together: each has a limit of its own
def test_no_text_is_slow_to_show(monkeypatch):
    for show in [panel, plain_panel, line, output, chat]:
        for size in SIZES:
            with case(size, show), monkeypatch.context() as patch:
                face = on_terminal(patch, show)
                # What is rendered at all is short, so the control is as long as that.
                control = max(seconds(face, (ORDINARY * size)[:chars]) for chars in (4_000, size))
                for name, text in attacks(size):
                    assert seconds(face, text, 20 * control) < 20 * control, (name, size)


# Case K1.
def test_carriage_returns_take_linear_time():
    control = seconds(apply_carriage_returns, "ordinary\r\ntext\r" * 40_000)
    for seed in ("\r", "a\r", "\r\r\n", "\n\r"):
        assert seconds(apply_carriage_returns, (seed * 600_000)[:600_000]) < 20 * control, seed
