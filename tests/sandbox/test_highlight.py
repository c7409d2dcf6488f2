"""How code is read for its colours."""

from hypothesis import given
from hypothesis import strategies as st

from codeact_sandbox import highlight
from codeact_sandbox.highlight import Highlighter, pieces

LANGUAGES = ["python", "bash", "javascript", "json", "unknown"]


def coloured(code, language):
    return [piece for piece in pieces(code, language) if piece[0]]


def test_tokens_have_their_classes():
    code = "class A:\n    def f(self, x=1.5e3, s='a\\'b'):  # \"c\n"
    code += '        return f"{x}" + """two\n  if\\""" lines""" if x else None\n'
    assert coloured(code, "Py") == [
        *(("k", "class"), ("nf", "A"), ("k", "def"), ("nf", "f"), ("nb", "self"), ("m", "1.5e3"), ("s", "'a\\'b'")),
        *(("c", '# "c'), ("k", "return"), ("s", '"{x}"'), ("s", '"""two'), ("s", '  if\\""" lines"""')),
        *(("k", "if"), ("k", "else"), ("k", "None")),
    ]
    assert coloured("if [ $# -gt 1 ]; then echo 'it'\\''s' # c 'd\nfi", "sh") == [
        *(
            ("k", "if"),
            ("m", "1"),
            ("k", "then"),
            ("nb", "echo"),
            ("s", "'it'"),
            ("s", "'s'"),
            ("c", "# c 'd"),
            ("k", "fi"),
        )
    ]
    assert coloured("/* a\n\\*/ const x = `b\nc` // d", "ts") == [
        *(("c", "/* a"), ("c", "\\*/"), ("k", "const"), ("s", "`b"), ("s", "c`"), ("c", "// d"))
    ]
    assert coloured('{"a": [1, true]}', "json") == [("s", '"a"'), ("m", "1"), ("k", "true")]
    assert coloured("if x: pass", "unknown") == []


@given(st.text(alphabet=st.sampled_from("\"'`\\/*#-+@<ai1 \n\r\t\0\u2028é"), max_size=200), st.sampled_from(LANGUAGES))
def test_the_pieces_are_the_code(code, language):
    found = pieces(code, language)
    assert "".join(text for _, text in found) == code
    assert all(text for _, text in found)
    assert [kind for kind, _ in found[1:]] != [kind for kind, _ in found[:-1]] or len(found) < 2


def test_no_character_is_read_again(monkeypatch):
    # By counting, because times depend on the machine: each search begins where the one before it has ended.
    begins = []

    class Counted:
        def __init__(self, pattern):
            self.pattern = pattern

        def search(self, line, at):
            begins.append((line, at))
            return self.pattern.search(line, at)

    tokens_of = highlight._tokens_of
    monkeypatch.setattr(highlight, "_tokens_of", lambda name: Counted(tokens_of(name)))
    for language in LANGUAGES[:-1]:
        for line in ("<<-" + "a" * 500, '"' * 501, "\\" * 501, "'a\\" * 300, "/*" * 300, "1a " * 300, "$((" * 300):
            begins.clear()
            Highlighter(language).line(line)
            assert [at for _, at in begins] == sorted({at for _, at in begins}), (language, line[:9])
