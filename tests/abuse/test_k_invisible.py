"""K7. No character that can't be seen is printed, or is in what somebody decides about, by Unicode's properties."""

import sys

import pytest
import regex

from autogen_codeact.cli.approval import ask_about
from autogen_codeact.cli.terminal import AnswerPrinter
from autogen_codeact.executors import AskPerson
from autogen_codeact.viewer.control import ApprovalQuestion
from codeact_sandbox.tools.approval import ToolApprovalRequest
from codeact_sandbox.types.filenames import printable, printable_text

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
