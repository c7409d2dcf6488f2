"""What the record of a session keeps, without a session."""

from typing import Any

import pytest
from autogen_core.code_executor import CodeBlock

from autogen_codeact.agents import journal
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, ExecutionResult


def test_a_rollback_takes_out_the_blocks_from_the_one_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_BLOCKS", 3)
    executor = BubblewrapCommandLineCodeExecutor(mode="session")
    record = journal.SessionRecord()

    def note(number: int, **more: Any) -> tuple[list[str], int]:
        block = CodeBlock(code=f"block {number}", language="python")
        record.add_block(
            executor, block, ExecutionResult(exit_code=0, output="", code_file=None, number=number, **more), None
        )
        return [entry.code.removeprefix("block ") for entry in record.journal.entries], record.journal.left_out

    for number in (2, 3, 5, 7, 8):
        note(number)
    killed: dict[str, Any] = {"outcome": "timeout", "state": "restored"}
    assert note(9, restored_before=9, **killed) == (["2", "3", "5"], 2)
    assert note(10, restored_before=8, **killed) == (["2", "3", "5"], 1)
    # Nobody has noted the one before which the session is.
    assert note(11, restored_before=4, **killed) == (["2", "3"], 0)
    assert note(12) == (["2", "3", "12"], 0)
    assert note(13, restored_before=1, **killed) == ([], 0)
