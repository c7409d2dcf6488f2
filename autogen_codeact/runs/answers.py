"""Questions of a run that wait for a person, and the files with the answers."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from autogen_codeact.runs.chain import Chain, user_chain
from autogen_codeact.runs.errors import RunError, RunFileError
from autogen_codeact.runs.events import MAX_REASON, QuestionAnswered, QuestionAsked
from autogen_codeact.runs.store import EVENTS, run_name
from codeact_sandbox.files.regular_files import open_regular
from codeact_sandbox.tools.question_text import can_be_shown, shown_whole
from codeact_sandbox.types.filenames import printable

ANSWERS = "answers"
MAX_OPEN = 100  # questions of a run that can be open at the same time
_MAX_BYTES = 16 * 1024
_MAX_NOTE = 2_000


@dataclass
class Question:
    asked: QuestionAsked
    answer: QuestionAnswered | None = None
    used: bool = False

    @property
    def note(self) -> str:
        """What the model is told about a call at which its code was stopped."""
        answer, text = self.answer, self.asked.text
        call = f"{self.asked.tool} with the arguments {text[:_MAX_NOTE]}{'…' if len(text) > _MAX_NOTE else ''}"
        if answer is not None and answer.approved:
            now = "It is approved now: it may be made once, with exactly these arguments."
        else:
            why = f": {answer.reason}" if answer is not None and answer.reason else ""
            now = f"It was not approved{why}." if answer is not None else "It has no answer yet."
        return f"The code was stopped while it waited for the approval of a call, which was not made: {call}. {now}"

    def describe(self) -> str:
        """Return the question as text for a terminal: what may run, or may be called."""
        asked = self.asked
        try:
            text = shown_whole(asked.text)
        except ValueError as error:
            text = f"[this can only be denied: {error}]"
        what = "run this code" if asked.tool is None else f"call {printable(asked.tool)} with these arguments"
        return f"{asked.question}: may {printable(asked.agent)} {what}?\n{text}"


class RunWaiting(RunError):
    """The run has ended until a person has answered its questions; `resume` goes on.

    Args:
        path: The run's folder.
        questions: The open questions, by name.
    """

    def __init__(self, path: Path, questions: Sequence[Question]) -> None:
        self.questions = {each.asked.question: each.describe() for each in questions}
        """The open questions, by name."""
        name = run_name(path)
        super().__init__(
            "\n".join([f"{name} waits for an answer:", *self.questions.values()])
            + f"\n`codeact resume {name} --approve` or `--deny REASON` answers, and the run goes on."
        )


class AlreadyAnsweredError(RunError):
    """Somebody has answered the question before."""


def digest(tool: str | None, text: str) -> str:
    """Return the SHA-256 to which an approval is bound: of exactly this code, or of the tool and exactly these arguments."""
    return hashlib.sha256(json.dumps([tool, text]).encode()).hexdigest()


def write_answers(path: Path, questions: Sequence[Question], decisions: Mapping[str, bool | str]) -> None:
    """Answer questions by name: True approves, False or a reason denies. The first answer counts, whichever process gives it."""
    known = {each.asked.question: each for each in questions}
    for name, decision in decisions.items():
        if (question := known.get(name)) is None:
            waiting = ", ".join(each.asked.question for each in questions if each.answer is None) or "no answer"
            raise RunError(f"{run_name(path)} has no question {name!r:.50}; it waits for {waiting}.")
        if question.answer is not None:
            raise _answered(question.answer)
        if not isinstance(decision, bool | str):
            raise TypeError(f"decisions= takes True, False or a reason for {name}, not {decision!r:.50}.")
        if decision is True and not can_be_shown(question.asked.text):
            raise RunError(f"{name} can't be approved, because it is too long to be shown.")
    for name, decision in decisions.items():
        reason = decision[:MAX_REASON] if isinstance(decision, str) else ""
        answer = QuestionAnswered(
            question=name, sha256=known[name].asked.sha256, approved=decision is True, reason=reason
        )
        _write(path, answer)


def _write(path: Path, answer: QuestionAnswered) -> None:
    (path / ANSWERS).mkdir(mode=0o700, exist_ok=True)
    line = answer.model_dump_json().encode()
    if (chain := _chain(path, make=True)) is None:
        raise RunError(
            "Answers are signed with a key of yours, which has no place: make ~/.local/state (or $XDG_STATE_HOME) a folder that "
            "you can write."
        )
    line = chain.signed(line)
    part, name = f".{secrets.token_hex(8)}", f"{answer.question}.json"
    with _folder(path) as folder:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            with open(os.open(part, flags, 0o600, dir_fd=folder), "wb") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            os.link(part, name, src_dir_fd=folder, dst_dir_fd=folder)  # fails if there is an answer
            os.fsync(folder)
        except FileExistsError:
            raise _answered(_read(path, answer.question, answer.sha256)) from None
        finally:
            with suppress(OSError):
                os.unlink(part, dir_fd=folder)


def _answered(answer: QuestionAnswered | None) -> AlreadyAnsweredError:
    if answer is None:
        return AlreadyAnsweredError("The question was answered before.")
    how = "approved" if answer.approved else "denied"
    return AlreadyAnsweredError(
        f"{answer.question} was {how} before, at {answer.time:%Y-%m-%d %H:%M} UTC: the first answer counts. "
        "`codeact resume` without an answer goes on with the run."
    )


def read_answers(path: Path, questions: Sequence[Question]) -> None:
    for each in questions:
        if each.answer is None:
            each.answer = _read(path, each.asked.question, each.asked.sha256)


def _read(path: Path, name: str, sha256: str) -> QuestionAnswered | None:
    chain: Chain | None = None
    try:
        with _folder(path) as folder, open_regular(f"{name}.json", folder=folder) as file:
            line = file.read(_MAX_BYTES + 1)
        if (chain := _chain(path)) is not None:
            chain.check(line)
        answer = QuestionAnswered.model_validate_json(line)
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        answer = None
    if answer is None or (answer.question, answer.sha256) != (name, sha256) or chain is None or chain.broken:
        raise RunFileError(
            f"{path / ANSWERS / name}.json is damaged, or you did not write it on this machine: remove it, and answer again."
        )
    return answer


def _chain(path: Path, *, make: bool = False) -> Chain | None:
    """Return the user's codes for what belongs to a log."""
    chain = user_chain(make=make)
    if chain is not None:
        with open_regular(path / EVENTS) as log:
            chain.begin(log.fileno())
    return chain


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    folder = os.open(path / ANSWERS, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)
