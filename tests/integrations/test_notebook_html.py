"""HTML of messages and results in a notebook: nothing of what models and code write runs, is loaded, or is unbounded."""

import html.parser
import re

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import (
    CodeExecutionEvent,
    CodeGenerationEvent,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
)
from autogen_core.code_executor import CodeBlock, CodeResult

from autogen_codeact.agents.observation import interrupted
from autogen_codeact.executors import ExecutionResult
from autogen_codeact.integrations import notebook_html
from codeact_sandbox.types.displays import Display, interleave
from codeact_sandbox.types.result import STOPPED, Artifact, ErrorInfo
from tests.cases import case

ALLOWED = {"div", "pre", "b", "img", "iframe"}
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</pre></div><script>alert(1)</script>",
    "![x](http://a.test/?stolen)",
    "![x][1]\n\n[1]: http://a.test/",
    "[x](javascript:alert(1))",
    "<javascript:alert(1)>",
    "[x](data:text/html,<script>alert(1)</script>)",
    '[x](http://a.test/ "t\\" onmouseover=alert(1) x=")',
    "```python\n</code></pre><script>alert(1)</script>\n```",
    '```"><script>alert(1)</script>\nx\n```',
    "&lt;script&gt;&#60;script&#62;alert(1)&#60;/script&#62;",
    "| a |\n|---|\n| <script>alert(1)</script> |",
    "\x1b[2J\x00\u202e\u2066 &#x202e; \ud800",
]


class Tags(html.parser.HTMLParser):
    """Checks each tag and attribute as a browser would see them."""

    def handle_starttag(self, tag, attrs):
        assert tag in ALLOWED
        for name, value in attrs:
            assert not name.startswith("on")
            if name == "src":
                assert value.startswith("data:image/")
        if tag == "iframe":
            assert dict(attrs)["sandbox"] == ""
            assert dict(attrs)["srcdoc"].startswith(
                '<meta http-equiv="Content-Security-Policy" content="default-src \'none\''
            )


def check(page):
    parser = Tags()
    parser.feed(page)
    parser.close()
    page = re.sub('srcdoc="[^"]*"', "", page)  # what is in a frame stays in it
    assert not any(character in page for character in "\x1b\x00\u202e\u2066\ud800")


def messages(text):
    bundle = {"text/html": text, "text/plain": text}
    svg = {"image/svg+xml": f"<svg>{text}</svg>", "text/plain": text}
    shown = (Display(f"display-1{text}", bundle), Display("figure-2.svg", svg))
    result = ExecutionResult(1, text, outcome="error", error=ErrorInfo(text, f"{text}!"), displays=shown, notes=(text,))
    result.artifacts = (Artifact(text, 1, "text/plain"),)
    return [
        TextMessage(content=text, source=text),
        CodeGenerationEvent(
            retry_attempt=0, content=text, code_blocks=[CodeBlock(code=text, language=text)], source=text
        ),
        CodeGenerationEvent(retry_attempt=0, content=text, code_blocks=[], source="a", metadata={"sent_back": text}),
        CodeExecutionEvent(retry_attempt=0, result=result, source=text),
        CodeExecutionEvent(retry_attempt=0, result=CodeResult(exit_code=1, output=text), source=text),
        ThoughtEvent(content=text, source=text),
        HandoffMessage(content=text, target=text, source=text),
        ModelClientStreamingChunkEvent(content=text, source=text),
    ]


def test_nothing_in_messages_runs_or_is_loaded():
    for text in HOSTILE:
        with case(text):
            shown = messages(text)
            for message in shown:
                check(notebook_html.message_to_html(message))
                assert "\x1b" not in notebook_html.message_to_text(message)
            check(notebook_html.run_to_html(TaskResult(messages=shown, stop_reason=text)))
            for message in shown:
                if isinstance(message, CodeExecutionEvent) and isinstance(message.result, ExecutionResult):
                    check(message.result._repr_mimebundle_()["text/html"])


def test_words_code_and_figures_are_shown():
    line = "<Figure size 640x480: figure-1.png>"
    image = Display("figure-1.png", {"image/png": b"\x89PNG"}, output_line=line, offset=7)
    output = f"before\n{line}\nafter\n"
    result = ExecutionResult(0, output, displays=(image,), duration_s=1.25)
    result.artifacts = (Artifact("figure-1.png", 4, "image/png"), Artifact("data.csv", 4, "text/csv"))
    page = notebook_html.message_to_html(
        CodeExecutionEvent(retry_attempt=0, result=result, source="coder", metadata={"step": "2"})
    )
    assert "<b>coder</b> ran code: ok, 1.25 s · step 2" in page
    before, figure, after = (
        page.index("before</pre>"),
        page.index('src="data:image/png;base64,'),
        page.index("after</pre>"),
    )
    assert before < figure < after
    assert "640x480" not in page
    assert "Files: data.csv</div>" in page
    code = CodeGenerationEvent(
        retry_attempt=0, content="So **this**:\n```python\nx = 'a'\n```", code_blocks=[], source="coder"
    )
    page = notebook_html.message_to_html(code)
    assert "So **this**:\n```python\nx = &#x27;a&#x27;\n```</pre>" in page


def test_title_of_a_result_says_how_the_code_ended():
    for result, words in [
        (CodeResult(exit_code=3, output=""), "failed, exit code 3"),
        (
            ExecutionResult(1, "", outcome="error", error=ErrorInfo("KeyError", "'a'")),
            "failed, KeyError, exit code 1, 0 ms",
        ),
        (ExecutionResult(130, "", outcome="crashed", error=STOPPED, duration_s=2.5), "stopped, 2.50 s"),
        (ExecutionResult(-9, "", outcome="crashed"), "crashed, exit code -9, 0 ms"),
        (interrupted([]), "interrupted while it ran; whether it finished is unknown"),
    ]:
        with case(result, words):
            event = CodeExecutionEvent(retry_attempt=0, result=result, source="coder")
            page = notebook_html.message_to_html(event)
            assert f"<b>coder</b> ran code: {words}</div>" in page
            assert "Stopped:" not in page
            assert notebook_html.message_to_text(event).splitlines()[0] == f"coder ran code: {words}"


def test_displays_without_an_offset_come_last_whatever_the_output_says():
    first, second = (
        Display("figure-1.png", {}, output_line="<Figure: figure-1.png>", offset=None),
        Display("display-2", {}, output_line="   a\n0  1", offset=2),
    )
    assert interleave("x\n   a\n0  1\ny", (first, second)) == ["x\n", second, "y", first]
    assert interleave("", (first,)) == [first]
    assert interleave("<Figure: figure-1.png>\n", (first,)) == ["<Figure: figure-1.png>\n", first]
    assert interleave("x\nanother text", (second,)) == ["x\nanother text", second]


def test_long_runs_and_outputs_are_bounded():
    many = [TextMessage(content=f"message {number:,}", source="user") for number in range(5000)]
    page = notebook_html.run_to_html(TaskResult(messages=many))
    assert page.count("codeact-message") == notebook_html.MAX_MESSAGES
    assert "4,800 messages are not shown here." in page
    assert "message 4,999" in page
    long = CodeExecutionEvent(retry_attempt=0, result=ExecutionResult(0, "<" * 5_000_000), source="coder")
    assert len(notebook_html.message_to_html(long)) < 200_000
    assert len(ExecutionResult(0, "<" * 5_000_000)._repr_mimebundle_()["text/html"]) < 1_000_000
    big = Display("figure-1.png", {"image/png": bytes(12_000_000), "text/plain": "<Figure>"})
    event = CodeExecutionEvent(retry_attempt=0, result=ExecutionResult(0, "", displays=(big,)), source="coder")
    page = notebook_html.run_to_html(TaskResult(messages=[event] * 6))
    assert len(page) < notebook_html.MAX_HTML_CHARS + 1_000_000
    assert page.rindex("<img") > page.index("CodeExecutionEvent")
