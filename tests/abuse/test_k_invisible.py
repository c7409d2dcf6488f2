"""K1 and K7. No text hides a character, and none is slow to show, in every face."""

import io
import sys
import time

import pytest
import regex

from autogen_codeact.cli.approval import ask_about
from autogen_codeact.cli.terminal import AnswerPrinter, Terminal
from autogen_codeact.executors import AskPerson
from autogen_codeact.viewer.control import ApprovalQuestion
from codeact_sandbox.tools.approval import ToolApprovalRequest
from codeact_sandbox.types.filenames import printable, printable_text
from codeact_sandbox.types.text import apply_carriage_returns
from tests.cases import case

# One search: a match for each character would take seconds, in each process that collects the tests.
IGNORABLE = regex.findall(r"\p{Default_Ignorable_Code_Point}", "".join(map(chr, range(sys.maxunicode + 1))))
BLANK = ["\u2800", "\U0001d159", "\U00016fe4"]
JOINERS = "\u200c\u200d"
LEGITIMATE = [
    "done \u2714\ufe0f 1\ufe0f\u20e3 \u2764\ufe0f\u200d\U0001f525 \U0001f469\u200d\U0001f4bb",
    "\u845b\U000e0100\u98fe\u533a \u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 na\xefve\u3000\xa0x",
    "\u28ff\u2800\u2800\u2801 a chart",
]


def escape(character):
    return character.encode("unicode_escape").decode()


# Case K7.
def test_every_invisible_character_is_an_escape_in_names_and_text():
    for each in [*IGNORABLE, *BLANK]:
        assert printable(each) == escape(each), hex(ord(each))
        assert printable(f"a{each}{each}b") == f"a{escape(each) * 2}b", hex(ord(each))
        shown = each if each in JOINERS else escape(each)
        assert printable_text(f"rm{each} x{each}{each}") == f"rm{shown} x{shown * 2}", hex(ord(each))
    assert printable_text("\u2714" + "\ufe0f" * 3) == "\u2714\ufe0f\\ufe0f\\ufe0f"  # data can be hidden in many
    for text in LEGITIMATE:
        assert printable_text(text) == text


class _Screen:
    width = has_colours = None
    shown = ""

    def code(self, pieces):
        self.shown += "".join(text for _, text in pieces)


# Case K7.
async def test_what_is_approved_has_no_invisible_character(monkeypatch: pytest.MonkeyPatch):
    hidden = "".join([*(each for each in IGNORABLE if each < "\U000e0000"), *BLANK, "\U000e0041\U000e0100"])
    source = f"print('a{hidden}\u2714\ufe0f')\n\tx = 1"
    asked = []

    async def ask(question, *_):
        asked.append(question.text)
        return "n"

    monkeypatch.setattr("autogen_codeact.cli.approval.ask", ask)
    monkeypatch.setattr("autogen_codeact.executors.tools.policies.ask", ask)
    await ask_about(source)
    await AskPerson()(ToolApprovalRequest("pay", {"to": hidden}, "pay(to)", "Pays.", "", "python"))
    printer = AnswerPrinter(screen := _Screen())
    printer.add(f"```python\n{source}\n```\n")
    document = ApprovalQuestion("code", source, "pay", {"to": hidden}).document(1)
    for text in [*asked, screen.shown, str(document["text"]), str(document["arguments"])]:
        assert not set(text) & {*IGNORABLE, *BLANK}, ascii(text)[:200]
        assert "\\u3164" in text, ascii(text)[:200]


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
