"""The tasks of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

CheckKind = Literal["exact", "number", "regex", "python"]


class Check(BaseModel):
    """How an answer is checked.

    Args:
        kind: "exact": the same text, without white space around it. "number": the last number in the answer. "regex": the
            pattern occurs in the answer. "python": code with the variables `answer`, `expected` and `task`; it sets `passed`,
            or an `assert` in it fails. The last two run in a sandbox of their own.
        expected: What the answer is compared with. Default: `expected` of the task.
        tolerance: How far a number may be from the expected one; absolute. Default 1e-6.
        relative: The same, as a part of the expected number. Default 0.
        code: The code of a "python" check.
        timeout: Seconds that a check in a sandbox may take, at least 0.001. Default 30.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: CheckKind = "exact"
    expected: Any = None
    tolerance: float = Field(default=1e-6, ge=0, allow_inf_nan=False)
    relative: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    code: str | None = None
    timeout: float = Field(default=30.0, ge=0.001, allow_inf_nan=False)


class CheckKeywords(TypedDict, total=False):
    """The fields of `Check`, for type checkers."""

    kind: CheckKind
    expected: Any
    tolerance: float
    relative: float
    code: str | None
    timeout: float


def _number_as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _kind_as_check(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


class Task(BaseModel):
    """One task of a batch.

    Args:
        id: Its name, unique in the batch; any text of up to 200 characters, or a whole number.
        task: What to do.
        files: Files that are in the workspace when it begins: name there to path on this machine.
        data: Files and folders of this machine that the code can read in /data.
        expected: The right answer, for `check`.
        check: How the answer is checked, or the kind alone. Default: "exact" if there is `expected`, else not at all.
        metadata: Anything else; it is copied into the row.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            id: str | int,  # noqa: A002
            task: str,
            files: Mapping[str, str] = ...,
            data: Sequence[str] = ...,
            expected: Any = None,
            check: Check | CheckKeywords | CheckKind | None = None,
            metadata: Mapping[str, Any] = ...,
        ) -> None: ...

    id: Annotated[str, BeforeValidator(_number_as_text)] = Field(min_length=1, max_length=200)
    task: str = Field(min_length=1)
    files: dict[str, str] = Field(default_factory=dict)
    data: list[str] = Field(default_factory=list)
    expected: Any = None
    check: Annotated[Check | None, BeforeValidator(_kind_as_check)] = None
    metadata: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class BadTask:
    """A task that can't be used; its place, such as `tasks.jsonl:17`, is the id of its row."""

    place: str
    reason: str
