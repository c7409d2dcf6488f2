"""Steps of a run with attempts and background jobs, as the viewer shows them."""

from contextlib import aclosing
from pathlib import Path

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.runs import recorded
from autogen_codeact.viewer.steps import RunSteps
from tests.agents.codeact import python
from tests.agents.support import scripted
from tests.sandbox import reused


async def test_attempts_that_were_not_kept_are_marked_to_be_folded(bubblewrap: None, tmp_path: Path) -> None:
    fails, works, late = python("1 / 0"), "So:\n" + python("print(42)"), python("print(43)")
    answers = (fails, works, late, *(python("print(44)"), python("print(45)"), "Odd."), "2", "Done.", "Done.", "Done.")
    async with reused.executor(BubblewrapCommandLineCodeExecutor, mode="session") as executor:
        for number, options in enumerate(({}, {"choose": "model"})):
            client = scripted(*(answers[3:] if options else (*answers[:3], *answers[7:])))
            agent = CodeActAgent("coder", executor, model_client=client, attempts=3, **options)  # type: ignore[arg-type]
            async with aclosing(recorded(agent, task="Go.", path=tmp_path / str(number))) as items:
                async for _ in items:
                    pass
    shown = []
    for number in range(2):
        steps = RunSteps(tmp_path / str(number))
        steps.read_all()
        shown.append(
            [
                (step["kind"], step.get("code") or step.get("text"), step.get("outcome"), step.get("undone", False))
                for step in steps.steps(1, len(steps))
            ]
        )
    assert shown[0] == [
        ("task", "Go.", None, False),
        ("model_call", fails, None, True),
        ("message", "So:", None, False),
        ("model_call", late, None, True),
        ("block", "1 / 0", "error", True),
        ("block", "print(42)", "ok", False),
        ("message", "Done.", None, False),
        ("model_call", "Done.", None, True),
        ("model_call", "Done.", None, True),
        ("end", None, "completed", False),
    ]
    assert [each[1:] for each in shown[1] if each[0] == "block"] == [
        ("print(44)", "ok", True),
        ("print(45)", "ok", True),
        ("print(45)", "ok", False),
    ]
