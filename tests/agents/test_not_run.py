"""Code in a model's message that is not run: what it is, and what the model and the caller are told."""

import pytest
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import CreateResult, RequestUsage

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents import codeact_prompt as prompt
from autogen_codeact.agents.code_runner import NOT_REACHED
from autogen_codeact.agents.code_search import (
    ANSWER_NOT_RUN,
    MAX_NAMED,
    SAME_CODE,
    code_in_answer,
    describe_not_run,
    find_code,
    looks_like_code,
    runnable_languages,
)
from autogen_codeact.executors.executor import SandboxCodeExecutor
from codeact_sandbox.types.result import ErrorInfo
from tests.agents.codeact import answer_message, comparable, execution_event, from_agent, generation_event, python
from tests.agents.support import model_answer, received_by, scripted, without_ids

LANGUAGES = runnable_languages(CodeActAgent.DEFAULT_SUPPORTED_LANGUAGES)
SQL = "```sql\nSELECT 1;\n```"
NAMED_SQL = "Code in your message was not run:\n- a block labelled sql: only bash, python or sh is run here"
SQL_IN_METADATA = '[{"language": "sql", "reason": "language"}]'


def fenced(label: str, code: str = "print(1)\n") -> str:
    return f"```{label}\n{code}```"


def cut(text: str) -> CreateResult:
    """An answer that ended at the maximum length."""
    usage = RequestUsage(prompt_tokens=0, completion_tokens=1)
    return CreateResult(finish_reason="length", content=text, usage=usage, cached=False)


def found(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    code = find_code([text], LANGUAGES)
    return [block.language for block in code.blocks], [(each.language, each.reason) for each in code.not_run]


# What is run, what is named, and what is data


@pytest.mark.parametrize(
    ("label", "code", "reason"),
    [
        ("zsh", "ls\n", "language"),
        ("powershell", "Get-Date\n", "language"),
        ("js", "console.log(1)\n", "language"),
        ("sql", "SELECT 1;\n", "language"),
        ("rust", "fn main() {}\n", "language"),
        ("made-up", "anything\n", "language"),
        ("", "print(1)\n", "unlabelled"),
        ("", "pip install pandas\n", "unlabelled"),
        ("pycon", ">>> 1 + 1\n2\n", "transcript"),
        ("console", "$ ls\na.txt\n", "transcript"),
        ("terminal", ">>> 1 + 1\n2\n", "transcript"),
        ("console", "pip install pandas\n", "language"),
    ],
)
def test_other_code_is_named(label: str, code: str, reason: str) -> None:
    name = {"js": "javascript"}.get(label, label)
    assert found(fenced(label, code)) == ([], [(name, reason)])
    assert found(python("x") + "\n" + fenced(label, code)) == (["python"], [(name, reason)])


@pytest.mark.parametrize(
    ("label", "content"),
    [
        ("json", '{"a": 1}\n'),
        ("text", "print(1)\n"),
        ("output", "print(1)\n"),
        ("traceback", "import os\n"),
        ("yaml", "a: 1\n"),
        ("html", "<p>\n"),
        ("bibtex", "@article{x}\n"),
        ("markdown", "# Title\n"),
        ("console", "a.txt  b.txt\n"),
        ("", "42\n"),
        ("", "| a | b |\n|---|---|\n"),
        ("", "name  age\nBob    3\n"),
        ("", '{"a": 1}\n'),
        ("", "E = mc^2\n"),
        ("", "Traceback (most recent call last):\nValueError: f(x)\n"),
    ],
)
def test_data_and_output_are_not_code(label: str, content: str) -> None:
    assert found(fenced(label, content)) == ([], [])


@pytest.mark.parametrize("label", ["", "sql", "json", "text", "python", "markdown"])
def test_a_fence_that_is_not_closed_cuts_a_message_off_whatever_its_label(label: str) -> None:
    text = f"So:\n```{label}\nprint(1)\nprint(2"
    assert find_code([text], LANGUAGES).cut_off
    # With other code, that code runs; only a cut block of a language that runs prevents it.
    assert find_code([f"{python('x')}\n{text}"], LANGUAGES).cut_off == (label == "python")


def test_a_line_of_tildes_is_no_cut_fence() -> None:
    assert not find_code(["Title\n~~~~~\nThe answer is 42.\n"], LANGUAGES).cut_off
    assert find_code(["~~~\nprint(1)\n"], LANGUAGES).cut_off


def test_code_in_an_answer_is_not_run_unless_it_was_before() -> None:
    text = f"{python('x = 1')}\n{SQL}\n{fenced('json', '1')}"
    assert [(each.language, each.reason) for each in code_in_answer(text, LANGUAGES)] == [
        ("python", "answer"),
        ("sql", "language"),
    ]
    assert [each.language for each in code_in_answer(text, LANGUAGES, ["x = 1\n\n"])] == ["sql"]


def test_names_of_languages_are_printable_and_short_and_few() -> None:
    text = "\n".join(fenced(f"x\x07{number}{'y' * 100}") for number in range(50))
    lines = describe_not_run(find_code([text], LANGUAGES).not_run, LANGUAGES).split("\n")
    assert len(lines) == 1 + MAX_NAMED
    assert lines[1] == f"- a block labelled x?0{'y' * 36}…: only bash, python or sh is run here"


@pytest.mark.parametrize("unit", [" ", "a.", "f(\n", "if ", "x = ", "(", "-", "x\n", "code:\n"])
def test_a_long_text_is_read(unit: str) -> None:
    looks_like_code(unit * 10**6)
    found(unit * 10**6)


@pytest.mark.parametrize(
    "text",
    [
        "print(sum(range(1, 11)))",
        "Here is the code:\nprint(1)\n\nIt prints 1.",
        "This Python program adds them:\n\nimport math\nprint(math.pi)",
        "total = sum([1, 2])",
        "def add(a, b):\n    return a + b",
        ">>> print(1)\n1",
        "[PYTHON]\nprint(1)\n[/PYTHON]",
        "> ```python\n> print(1)\n> ```",
        "Sure:\n<code>\nprint(1)\n</code>",
    ],
)
def test_code_without_a_fence_is_named(text: str) -> None:
    assert found(text) == ([], [("", "unfenced")])


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 55.",
        "55",
        "total",
        "x = 5",
        "[1, 2, 3]",
        "Use print(x) to see it.",
        "The list is:\n[5, 8]",
        "The distance is given by:\nd = sqrt((a - 0)**2 + (b - 0)**2)",
        "import antigravity is a joke",
        "The report names three languages: [Python](https://python.org), Rust and Go.",
    ],
)
def test_prose_values_and_formulas_are_no_code(text: str) -> None:
    assert found(text) == ([], [])


# CodeActAgent


async def test_code_without_a_fence_is_asked_for_again_and_never_run(session: SandboxCodeExecutor) -> None:
    client = scripted("print(6 * 7)", python("print(6 * 7)"), "It is 42.")
    agent = CodeActAgent("coder", session, model_client=client)
    result = await agent.run(task="What is 6 * 7?")
    asked = received_by(client)[1][-1].content
    assert asked == (
        "Code in your message was not run:\n- code that is not in a fenced block: to have code run, write it between a line with "
        f"``` and its language, bash, python or sh, and a line with ```\n{ANSWER_NOT_RUN}"
    )
    assert result.messages[-1].to_text() == "It is 42."


async def test_python_and_shells_run_in_order(session: SandboxCodeExecutor) -> None:
    text = "\n".join(
        [
            python("open('made', 'w').write('1')"),
            fenced("sh", "echo sh $(cat made); echo 2 > made\n"),
            fenced("bash", "[[ -e made ]] && echo bash $(cat made)\n"),
            fenced("shell", "echo shell\n"),
            *(
                fenced(label, f"print('{label}')\n")
                for label in ("Python", "{python}", "py", "python3", "ipython", "ipython3")
            ),
        ]
    )
    agent = CodeActAgent("actor", session, model_client=scripted(text, "Done."))
    result = await agent.run(task="Go.")
    output = "1\nsh 1\nbash 2\nshell\nPython\n{python}\npy\npython3\nipython\nipython3\n"
    assert result.messages[2].result.output == output  # type: ignore[union-attr]
    assert "labelled with its language, bash, python or sh:" in str(agent._whole_system_message("Act.", (), None))


async def test_code_in_another_language_is_named_once_and_then_the_answer(session: SandboxCodeExecutor) -> None:
    again = f"As I said:\n{SQL}"
    client = scripted(SQL, again)
    result = await CodeActAgent("actor", session, model_client=client).run(task="Write SQL.")
    named = f"{NAMED_SQL}\n{ANSWER_NOT_RUN}"
    assert comparable(result.messages[1:]) == [
        generation_event(1, SQL, not_run=SQL_IN_METADATA, sent_back=named),
        answer_message(again, steps="2", not_run=SQL_IN_METADATA),
    ]
    assert received_by(client)[1][-1] == from_agent(named)


async def test_code_beside_code_that_runs_is_named_once_in_the_observation(session: SandboxCodeExecutor) -> None:
    text = f"{python('print(1)')}\n{SQL}"
    client = scripted(text, text, SQL, SQL)
    result = await CodeActAgent("actor", session, model_client=client).run(task="Go.")
    generated = {"not_run": SQL_IN_METADATA}
    assert comparable(result.messages[1:]) == [
        generation_event(1, text, "print(1)\n", **generated),
        execution_event(1, "1\n"),
        generation_event(2, text, "print(1)\n", **generated),
        execution_event(2, "1\n"),
        answer_message(SQL, steps="3", not_run=SQL_IN_METADATA),
    ]
    assert [call[-1] for call in received_by(client)[1:]] == [
        from_agent(f"1\n\n{NAMED_SQL}"),
        from_agent(f"1\n\n{SAME_CODE}"),
    ]


async def test_blocks_after_one_that_fails_are_not_run(session: SandboxCodeExecutor) -> None:
    text = "\n".join([python("1 / 0"), python("2"), python("3")])
    client = scripted(text, "No.")
    result = await CodeActAgent("actor", session, model_client=client).run(task="Go.")
    note = NOT_REACHED
    execution = result.messages[2].result  # type: ignore[union-attr]
    assert execution.notes == (note,)
    assert execution.error == ErrorInfo("ZeroDivisionError", "division by zero", 1)
    assert str(received_by(client)[1][-1].content).endswith(note)


async def test_a_message_that_reached_its_maximum_length_is_asked_for_again(session: SandboxCodeExecutor) -> None:
    client = scripted(cut("It is"), cut("It is 4"))
    result = await CodeActAgent("actor", session, model_client=client).run(task="Go.")
    assert comparable(result.messages[1:]) == [
        generation_event(1, "It is", sent_back=prompt.CUT_OFF_TEXT),
        answer_message("It is 4", steps="2", cut_off="true"),
    ]


# CodeExecutorAgent


async def test_repairing_agent_names_code_while_attempts_are_left(executor: CodeExecutor) -> None:
    client = scripted(SQL, SQL)
    agent = CodeExecutorAgent("coder", executor, model_client=client, max_retries_on_error=2)
    result = await agent.run(task="Go.")
    named = f"{NAMED_SQL.replace('bash, ', '')}\n{ANSWER_NOT_RUN}"
    assert [(message.to_text().strip(), message.metadata) for message in result.messages[1:]] == [
        (SQL, {"not_run": SQL_IN_METADATA, "sent_back": named}),
        (SQL, {"not_run": SQL_IN_METADATA}),
    ]
    assert received_by(client)[1][-1].content == named


async def test_repairing_agent_names_code_beside_code_that_ran(executor: CodeExecutor) -> None:
    client = scripted(f"{python('print(1)')}\n{SQL}", "One.")
    result = await CodeExecutorAgent("coder", executor, model_client=client).run(task="Go.")
    assert received_by(client)[1][-1].content == f"1\n\n{NAMED_SQL.replace('bash, ', '')}"
    assert result.messages[-1].metadata == {}


async def test_reflection_with_new_code_says_that_it_was_not_run(executor: CodeExecutor) -> None:
    text = f"I ran\n{python('print(1)')}\nBetter:\n{python('print(2)')}"
    client = scripted(python("print(1)"), model_answer(text))
    result = await CodeExecutorAgent("coder", executor, model_client=client).run(task="Go.")
    assert result.messages[-1].metadata == {"not_run": '[{"language": "python", "reason": "answer"}]'}


async def test_executor_without_a_model_names_code_that_it_does_not_run(executor: CodeExecutor) -> None:
    agent = CodeExecutorAgent("runner", executor)
    named = NAMED_SQL.replace("bash, ", "").replace("your message", "the thread")
    nothing = await agent.run(task=SQL)
    some = await agent.run(task=f"{python('print(1)')}\n{SQL}")
    assert [without_ids(result.messages)[-1]["content"] for result in (nothing, some)] == [
        f"{CodeExecutorAgent.NO_CODE_BLOCKS_FOUND_MESSAGE} {named}",
        f"1\n\n{named}",
    ]
    assert nothing.messages[-1].metadata == {"not_run": SQL_IN_METADATA}
