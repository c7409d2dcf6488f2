"""The questions that a run has in its log, for a page: its process has ended, and somebody answers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from autogen_codeact.runs.answers import ANSWERS, Question, digest
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.plan import answered, make_plan
from autogen_codeact.runs.store import EVENTS
from autogen_codeact.viewer.control import ApprovalQuestion
from autogen_codeact.viewer.schema import Document

_MAX_AT_ONCE = 10
_FIRST = 1_000_000
"""Before their numbers: a click on a question of a live run answers none of these."""


class KeptQuestions:
    """The open questions of one run; the methods read files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[int, int] | None = None
        self._documents: list[Document] = []
        self._shown: dict[str, str] = {}
        """Digests of what was shown first, by the names of questions: an answer is about that, also if the log changes."""

    def documents(self) -> list[Document]:
        """Return the first questions without an answer, as the page gets them."""
        try:
            answers = self._path / ANSWERS
            now = (self._path / EVENTS).stat().st_size, answers.stat().st_mtime_ns if answers.exists() else 0
            if now != self._read:
                known = make_plan(self._path).open_questions
                self._documents, self._read = [], now
                for each in known[:_MAX_AT_ONCE]:
                    with suppress(ValueError):  # it can't be shown whole
                        self._documents.append(_document(each))
                        self._shown.setdefault(each.asked.question, digest(each.asked.tool, each.asked.text))
        except (RunError, OSError, RecursionError):
            return []
        return self._documents

    def answer(self, number: int, *, approve: bool) -> bool:
        """Answer a question; return whether it was still open, and can be answered."""
        name = f"q{number - _FIRST}"
        try:
            plan = make_plan(self._path)
            asked = {each.asked.question: each.asked.sha256 for each in plan.questions}
            if asked.get(name) != self._shown.get(name):
                return False
            answered(plan, {name: approve})
        except RunError:
            return False
        return True


def _document(question: Question) -> Document:
    asked = question.asked
    if asked.tool is None:
        return ApprovalQuestion("code", asked.text, agent=asked.agent).document(_FIRST + int(asked.question[1:]))
    return ApprovalQuestion("call", "", asked.tool, asked.text, asked.agent).document(_FIRST + int(asked.question[1:]))
