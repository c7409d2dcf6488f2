"""What `codeact batch` works on: its tasks, the settings in its options, and what its results depend on."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from autogen_codeact.batch.reading import read_tasks
from autogen_codeact.batch.settings import BatchSettings, Prices
from autogen_codeact.batch.tasks import BadTask, Check, CheckKind, Task
from autogen_codeact.cli.agents import DEFAULT_RETRIES, DEFAULT_STEPS
from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.jobs import BatchJob
from autogen_codeact.cli.model_choice import REPLAY
from autogen_codeact.sandbox.types.environment import parse_environment, resolve

COMPARING = tuple(kind for kind in get_args(CheckKind) if kind != "python")
_MAY_DIFFER = ("hosts", "hosts_file")
"""Where the sandboxes are."""
_RARE = {
    **{name: name for name in ("attempts", "max_sandboxes", "model_calls_per_minute", "tasks_per_minute")},
    "max_seconds": "max_seconds",
    "task_timeout": "task_timeout",
    "backoff": "backoff_s",
}
"""Settings that are given with `--option`, and their names in `BatchSettings`."""


def read_settings(job: BatchJob) -> tuple[BatchJob, BatchSettings, int]:
    """Return the job without the settings among the values of `--option`, the settings, and how many tasks use a sandbox.

    Raises `CommandError` if one is invalid.
    """
    if job.max_cost is not None and job.price is None:
        raise CommandError("--max-cost needs --price P:C: without the prices the cost is not known.")
    rare: dict[str, str] = {}
    others = []
    for text in job.sandbox.others or ():
        name, equals, value = text.partition("=")
        if equals and (name in _RARE or name == "sandbox_uses"):
            rare[name] = value
        else:
            others.append(text)
    uses = rare.pop("sandbox_uses", "1")
    if not (uses.isdecimal() and int(uses)):
        raise CommandError("--option sandbox_uses: give a whole number above 0.")
    try:
        settings = BatchSettings.model_validate(
            {
                "concurrency": job.concurrency,
                "repeat": job.repeat,
                "max_tokens": job.max_tokens,
                "max_cost": job.max_cost,
                "prices": _prices(job.price),
                **{_RARE[name]: value for name, value in rare.items()},
            }
        )
    except ValidationError as error:
        names = {field: f"--option {name}" for name, field in _RARE.items()}
        wrong = [(str(each["loc"][0]), each["msg"]) for each in error.errors()]
        problems = "; ".join(f"{names.get(name, '--' + name.replace('_', '-'))}: {what}" for name, what in wrong)
        raise CommandError(f"{problems}.") from None
    return replace(job, sandbox=replace(job.sandbox, others=others or None)), settings, int(uses)


def _prices(text: str | None) -> Prices | None:
    if text is None:
        return None
    parts = text.split(":")
    with suppress(ValueError):
        if len(parts) == 2:
            return Prices(prompt=float(parts[0]), completion=float(parts[1]))
    raise CommandError(
        f"--price {text} is not a pair of prices: give the price of a million tokens that the model reads, and that it writes, "
        "such as 2.5:10."
    )


class ChosenTasks:
    """Iterates the tasks, each time from the first one."""

    is_repeatable = True

    def __init__(self, source: Path, limit: int | None = None, check: str | None = None) -> None:
        self._source, self._limit = source, limit
        self._check = _default_check(check) if check is not None else None
        self.total: int | None = None
        """How many there are, each repetition counted, when `count` was called."""
        self.bad = 0
        """How many can't be used, when `count` was called."""

    async def check(self) -> None:
        """Read the first task, so that what is wrong with the file as a whole is said before anything is started."""
        async with aclosing(self._read()) as tasks:
            await anext(tasks, None)

    async def count(self, repeat: int) -> int:
        """Return how many there are."""
        number = bad = 0
        async with aclosing(self._read()) as tasks:
            async for task in tasks:
                number += 1
                bad += isinstance(task, BadTask)
        self.bad = bad
        self.total = number * repeat
        return self.total

    def __aiter__(self) -> AsyncIterator[Task | BadTask]:
        return self._read()

    async def _read(self) -> AsyncGenerator[Task | BadTask, None]:
        number = 0
        async with aclosing(read_tasks(self._source)) as tasks:
            async for task in tasks:
                number += 1
                if self._limit is not None and number > self._limit:
                    return
                yield self._with_check(task)

    def _with_check(self, task: Task | BadTask) -> Task | BadTask:
        check = self._check
        if not isinstance(task, Task) or check is None or task.check is not None:
            return task
        if check.kind != "python" and task.expected is None:
            return task
        return task.model_copy(update={"check": check})


def _default_check(text: str) -> Check:
    if text in COMPARING:
        return Check(kind=text)  # type: ignore[arg-type]
    if not text.endswith(".py"):
        raise CommandError(
            f"--check {text}: give {', '.join(COMPARING)}, or a file of Python code whose name ends in .py."
        )
    try:
        return Check(kind="python", code=Path(text).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise CommandError(f"--check {text} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"--check {text} is not UTF-8 text.") from error


def describe_job(job: BatchJob) -> dict[str, Any]:
    """Return the options that results depend on, without secrets: texts that may hold one are hashed."""
    agent, model = job.agent, job.model
    described: dict[str, Any] = {"--model": model.spec, "--base-url": model.base_url}
    if model.is_file:
        described["content of the model's file"] = _hash_file(Path(model.spec.removeprefix(REPLAY)))
    described["--team"], described["--act"] = agent.team, agent.act
    if agent.act:
        described["--steps"] = DEFAULT_STEPS if agent.steps is None else agent.steps
    elif not agent.team:
        described["--retries"] = DEFAULT_RETRIES if agent.retries is None else agent.retries
    described["--describe-environment"] = agent.describe_environment
    described["--check"] = _check(job.check)
    return described | _sandbox(job)


def for_nodes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of executors that mean on other nodes what they mean here: with absolute paths, and values of variables."""
    sent = dict(options)
    if "environment" in sent:
        sent["environment"] = resolve(parse_environment(sent["environment"]))
    if "data" in sent:
        sent["data"] = [path.absolute() if isinstance(path, Path) else path for path in sent["data"]]
    return sent


def _sandbox(job: BatchJob) -> dict[str, Any]:
    names = {"kind": "--sandbox", "packages": "--package", "allow_domains": "--allow-domain", "others": "--option"}
    names["environment"] = "--env"
    found = {}
    for each in fields(job.sandbox):
        value = getattr(job.sandbox, each.name)
        if value is None or value in ((), []) or each.name in _MAY_DIFFER:
            continue
        if isinstance(value, (list, tuple)):
            texts = map(str, value)
            hashed = each.name in ("others", "environment")
            value = [_hash(text.encode()) if hashed and "=" in text else text for text in texts]
        name = names.get(each.name, f"--{each.name.replace('_', '-')}")
        found[name] = value if isinstance(value, (bool, int, float, list)) else str(value)
    return found


def _check(check: str | None) -> str | None:
    return _hash_file(Path(check)) if check is not None and check.endswith(".py") else check


def _hash_file(path: Path) -> str | None:
    try:
        return _hash(path.read_bytes())
    except OSError:  # whoever uses it says what is wrong
        return None


def _hash(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
