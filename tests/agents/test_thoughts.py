"""What a model thinks in tags: no reader of its text takes it for its answer."""

import pytest

from autogen_codeact.agents.code_search import find_code
from autogen_codeact.agents.extraction import without_thoughts

DRAFT = "```python\nprint('draft')\n```"
FINAL = "```python\nprint('final')\n```"
NAMES = ("think", "thinking", "thought", "reasoning", "reflection", "seed:think", "THINK", "Reasoning")


def codes(text: str) -> list[str]:
    return [block.code.strip() for block in find_code([text], {"python", "bash", "sh"}).blocks]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "form",
    [
        "<{0}>{1}</{0}>\n{2}",
        "\n <{0}>\n{1}\n</{0}>\n\n{2}",
        "<{0}>a\n{1}</{0}><{0}> b\n{1}\n</{0}>\nHere:\n{2}",
        "<{0}>a</{0}>\nFirst.\n<{0}>\n{1}\n</{0}>\n{2}",
        "Let me see. <{0}>\n{1}\n</{0}>\n{2}",
        "{1}\nThat was a draft.</{0}>\n{2}",
        "{1}\n</{0}>  \n{2}",
        "a\n</{0}>\n{1}\nno, again</{0}>\n{2}",
        '<{0} effort="high">{1}</{0}>\n{2}',
    ],
)
def test_drafts_in_thoughts_are_not_run(name: str, form: str) -> None:
    assert codes(form.format(name, DRAFT, FINAL)) == ["print('final')"]


@pytest.mark.parametrize("text", [f"[THINK]{DRAFT}[/THINK]{chr(10)}{FINAL}", f"◁think▷{DRAFT}◁/think▷{chr(10)}{FINAL}"])
def test_other_brackets_of_thoughts_are_known(text: str) -> None:
    assert codes(text) == ["print('final')"]


@pytest.mark.parametrize(
    "code",
    [
        "prompt = '<think>plan</think>'",
        'prompt = """<think>\nplan\n</think>"""',
        "text.split('</think>')",
        "# <reasoning> of the parser\nx = 1  # </reasoning>",
    ],
)
def test_tags_in_code_are_code(code: str) -> None:
    assert codes(f"I parse it.\n```python\n{code}\n```\nDone.") == [code]


def test_sentence_about_the_tags_hides_no_code() -> None:
    text = f"Put it between `<think>` and `</think>`, or between <think> and </think> tags.\n{FINAL}"
    assert codes(text) == ["print('final')"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>a</think>\n\ncoder", "coder"),
        ("<thinking>a</thinking>coder <reflection>b</reflection>", "coder"),
        ("First a, hm.\n</think>\n\ncoder", "coder"),
        ("<think>never closed", "<think>never closed"),
        ("no thoughts", "no thoughts"),
    ],
)
def test_answer_is_what_is_left_without_thoughts(text: str, answer: str) -> None:
    assert without_thoughts(text) == answer


# Blocks that can't end where a fence stands


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("bash", "cat > README.md <<'EOF'\n# App\n```\npip install app\n```\nEOF\nwc -l README.md"),
        ("sh", "cat <<-END | sort\n\t```\n\tb\n\t```\n\tEND"),
        ("bash", 'cat <<A <<"B C"\n```\nA\n```\nB C\necho $((1<<2)) ${x#y} # it\'s <<NO'),
        ("python", 'doc = """\n```\nplain fence\n```\n"""\nprint(doc)'),
        ("python", "doc = r'''\n```\n'''  # it's \"\"\" here"),
    ],
)
def test_block_with_fences_in_a_text_is_whole(language: str, code: str) -> None:
    assert codes(f"Here:\n```{language}\n{code}\n```\nDone, it's <<EOF.\n{FINAL}") == [code, "print('final')"]


@pytest.mark.parametrize(
    "text",
    [
        "```bash\ncat > a <<EOF\nline\n```\nand then",
        "```bash\ncat > a <<EOF\n```\nmore\n```\n",
        "```sh\ncat > a <<'EOF' && rm b\n```",
    ],
)
def test_here_document_that_never_ends_is_cut_off(text: str) -> None:
    found = find_code([text], {"bash", "sh"})
    assert (found.blocks, found.cut_off) == ([], True)


@pytest.mark.parametrize(
    "code", ["echo don't", "cat <<< word", "echo '<<EOF'", "# <<EOF", "x=$((a << b))", 'echo "<<EOF"']
)
def test_what_looks_like_a_here_document_runs(code: str) -> None:
    assert codes(f"```bash\n{code}\n```\nIt's done.") == [code]
