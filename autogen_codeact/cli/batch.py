"""`codeact batch`: many tasks, solved by agents at the same time."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from typing import Any, cast

from autogen_core.code_executor import CodeExecutor
from autogen_core.models import AssistantMessage, ChatCompletionClient, CreateResult, LLMMessage
from pydantic import ValidationError

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.budget import Prices
from autogen_codeact.agents.model_calls import DeadlineClient
from autogen_codeact.batch.errors import BatchBudgetError
from autogen_codeact.batch.results import summarize
from autogen_codeact.batch.running import Batch, run_batch
from autogen_codeact.batch.settings import BatchSettings
from autogen_codeact.batch.tasks import BadTask, Task, read_tasks
from autogen_codeact.cli import batch_display
from autogen_codeact.cli.jobs import BatchJob
from autogen_codeact.cli.model_servers import REPLAY
from autogen_codeact.cli.models import RecordedModel, advice_for, open_model, parse_answers, read_file
from autogen_codeact.cli.output import (
    EXIT_INTERRUPTED,
    CommandError,
    LastJsonLine,
    run_until_interrupted,
    say,
    silence_libraries,
)
from autogen_codeact.cli.sandbox import Limits, check_limits, make_agent, read_limits, started
from autogen_codeact.cli.sandbox_choice import Kind, with_skills
from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor
from autogen_codeact.teams import Team
from codeact_sandbox.host.waiting import in_thread

EXIT_FAILED, EXIT_BUDGET = 1, 3
SAME_ERRORS = 10
"""Tasks that all fail with an error that only the user can mend, such as a wrong key, after which the batch stops."""
AGAIN = "the same command goes on from here"


def run_tasks(job: BatchJob, end: LastJsonLine) -> int:
    """Run the tasks, and show how far the batch is; return the exit status."""
    job.agent.check(job.sandbox)
    job = replace(job, sandbox=with_skills(job.sandbox))
    if job.sandbox.work_dir is not None:
        raise CommandError(
            "--work-dir is not for a batch: tasks would overwrite each other's files. Use `files` of a task, or --data for all; "
            "each run's folder keeps what its code has made."
        )
    job, settings = read_settings(job)
    silence_libraries()
    with batch_display.BatchDisplay(live=not (end.enabled and sys.stdout.isatty()), plain=not end.enabled) as display:
        running = _Running(job, settings, end, display)
        return run_until_interrupted(running.run(), end.cancelled, on_interrupt=running.finish)


class _Running:
    """One command, from the first look at the sandbox to the summary."""

    def __init__(
        self, job: BatchJob, settings: BatchSettings, end: LastJsonLine, display: batch_display.BatchDisplay
    ) -> None:
        self._job, self._settings, self._end, self._display = job, settings, end, display
        self._limits = _limits_of_a_task(job)
        check_limits(job.agent, self._limits)
        self._client: ChatCompletionClient | None = None
        self._recording: _Recording | None = None
        self._batch: Batch | None = None
        self._taken = 0
        self._finishing = False
        self._errors = list[str]()
        self._stopped_for: str | None = None

    def finish(self) -> bool:
        """Begin no further task, at the first Ctrl-C; return whether running tasks are finished first."""
        if self._batch is None or self._finishing:
            return False
        self._finishing = True
        self._batch.stop()
        running = self._batch.counts.running
        say(
            f"no further task begins; the {running} that run{'s' * (running == 1)} go{'es' * (running == 1)} on to the end "
            "(Ctrl-C again stops at once)"
        )
        return True

    async def run(self) -> int:
        async with AsyncExitStack() as stack:
            self._open_model()
            if self._client is not None:
                stack.push_async_callback(self._client.close)
            # What is wrong with the file as a whole is said before anything is started.
            tasks = await in_thread(read_tasks, self._job.tasks)
            # A first sandbox builds the image once, and shows an error of all tasks before they begin.
            async with started(self._job.sandbox) as executor:
                kind: Kind = "bubblewrap" if isinstance(executor, BubblewrapCommandLineCodeExecutor) else "docker"
            spent = await self._follow(kind, tasks)
        return await self._sum_up(spent)

    def _open_model(self) -> None:
        model = self._job.model
        if model.spec.startswith(REPLAY):
            model.check()
            name = model.spec.removeprefix(REPLAY)
            self._recording = _Recording(name, read_file(name))
        else:
            self._client = open_model(model)

    def _make_agent(self, executor: CodeExecutor, task: Task) -> CodeActAgent | CodeExecutorAgent | Team:
        client = self._client
        if self._recording is not None:
            client = self._recording.client(task.id, self._job.model.timeout_s)
        assert client is not None
        return make_agent(self._job.agent, self._limits, client, executor, stream=False, stream_output=False)

    async def _follow(self, kind: Kind, tasks: list[Task | BadTask]) -> str | None:
        options = {"delete_tmp_files": True, **self._job.sandbox.options()}
        del options["work_dir"]
        batch = self._batch = run_batch(
            self._make_agent,
            tasks,
            out=self._job.out,
            settings=self._settings,
            sandbox=cast("Any", kind),
            on_event=self._display.on_event,
            accept_changes=self._job.accept_changes,
            configuration=await asyncio.to_thread(describe_job, self._job),
            **options,
        )
        self._display.follow(lambda: batch.counts)
        self._end.advice = AGAIN
        try:
            async with aclosing(batch) as rows:
                async for row in rows:
                    self._taken += 1
                    self._display.take(row)
                    if row.outcome != "invalid":
                        self._errors.append(row.error_class or "")
                    if len(self._errors) == SAME_ERRORS and (advice := self._advice()) is not None:
                        self._stopped_for = advice
                        batch.stop()
        except BatchBudgetError as error:
            return str(error)
        return None

    def _advice(self) -> str | None:
        """Return what the user can do if all tasks so far have failed with the same error."""
        return advice_for(self._errors[0], self._job.model) if len(set(self._errors)) == 1 else None

    async def _sum_up(self, spent: str | None) -> int:
        job = self._job
        self._display.close()
        assert self._batch is not None
        counts, ended = self._batch.counts, self._batch.ended
        if ended == "stopped" and counts.done == counts.total and not counts.failed:
            ended = "complete"  # the tasks that ran were the last ones
        summary = await asyncio.to_thread(summarize, job.out)
        if self._end.enabled:
            fields = {"ended": ended, "ended_by": spent, "folder": str(job.out.absolute())}
            self._end.end_with({"type": "summary", **fields, **summary.model_dump(mode="json")})
        else:
            batch_display.print_summary(summary, job.out)
            if ended == "complete" and not self._taken:
                say("all tasks had results, so none was run: give another --out to do them again")
        if spent is not None:
            say(spent)
            return EXIT_BUDGET
        advice = self._stopped_for or self._advice()
        if advice is not None:
            say(f"{advice} Then {AGAIN}")
        if ended == "stopped" and self._stopped_for is None:
            say(f"interrupted, {batch_display.describe_progress(counts)[0]}; {AGAIN}")
            return EXIT_INTERRUPTED
        return EXIT_FAILED if summary.failed or summary.invalid else 0


_WITH_FLAG = {"prices", "max_cost", "max_tokens", "max_seconds", *BatchJob.__dataclass_fields__}
_BY_OPTION = {name.removesuffix("_s"): name for name in BatchSettings.model_fields if name not in _WITH_FLAG}
"""Settings that are given with `--option`, by the names there."""


def read_settings(job: BatchJob) -> tuple[BatchJob, BatchSettings]:
    """Return the job without the settings among the values of `--option`, and the settings.

    Raises `CommandError` if one is invalid.
    """
    limits = read_limits(job.agent.budget, job.model.spec)
    rare: dict[str, str] = {}
    others = []
    for text in job.sandbox.others or ():
        name, equals, value = text.partition("=")
        if equals and name in _BY_OPTION:
            rare[name] = value
        else:
            others.append(text)
    try:
        settings = BatchSettings.model_validate(
            {
                "concurrency": job.concurrency,
                "repeat": job.repeat,
                **limits.model_dump(include={"max_tokens", "max_seconds", "max_cost"}),
                "prices": limits.prices or Prices.known(job.model.spec),
                **{_BY_OPTION[name]: value for name, value in rare.items()},
            }
        )
    except ValidationError as error:
        wrong = [(str(problem["loc"][0]).removesuffix("_s"), problem["msg"]) for problem in error.errors()]
        names = {name: f"--option {name}" for name in _BY_OPTION}
        problems = "; ".join(f"{names.get(name, '--' + name.replace('_', '-'))}: {what}" for name, what in wrong)
        raise CommandError(f"{problems}.") from None
    return replace(job, sandbox=replace(job.sandbox, others=others or None)), settings


def describe_job(job: BatchJob) -> dict[str, Any]:
    """Return the options that results depend on, without secrets: texts that may hold one are hashed."""
    agent, model = job.agent, job.model
    described: dict[str, Any] = {"--model": model.spec, "--base-url": model.base_url}
    if model.is_file:
        described["content of the model's file"] = _hash(read_file(model.spec.removeprefix(REPLAY)))
    limits = _limits_of_a_task(job)
    described |= {"--act": agent.act, "--team": agent.team, "steps": limits.max_steps, "retries": limits.max_retries}
    return described | _sandbox(job)


def _sandbox(job: BatchJob) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in vars(job.sandbox).items():
        if isinstance(value, list):
            found[name] = [_hash(text) if "=" in text else text for text in map(str, value)]
        elif value is not None:
            found[name] = value if isinstance(value, bool | int | float) else str(value)
    return found


def _hash(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _limits_of_a_task(job: BatchJob) -> Limits:
    """Return what an agent may use for one task; the other limits are those of the batch."""
    limits = read_limits(job.agent.budget, job.model.spec)
    return Limits(**limits.model_dump(include={"max_steps", "max_retries"}, exclude_unset=True))


class _Recording:
    """Recorded answers: the same for each task, or those of each task."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        recorded: Any = None
        with suppress(ValueError):  # `parse_answers` says what is wrong
            recorded = json.loads(text)
        by_task = recorded.get("tasks") if isinstance(recorded, dict) else None
        by_task = by_task if isinstance(by_task, dict) else None
        self._common = parse_answers(text, name) if by_task is None else None
        self._by_task = {
            id_: parse_answers(json.dumps(answers), f"{name}: {id_}") for id_, answers in (by_task or {}).items()
        }

    def client(self, id_: str, timeout_s: float) -> ChatCompletionClient:
        answers: Sequence[Any] | None = self._common or self._by_task.get(id_)
        if answers is None:
            raise CommandError(f"{self._name} has no answers for the task {id_}")
        return DeadlineClient(_ContinuedRecording(answers), timeout_s)


class _ContinuedRecording(RecordedModel):
    """A recording for an attempt, which may continue a run log: the answers in the log are not given again."""

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:
        if not self.create_calls:
            earlier = [message.content for message in messages if isinstance(message, AssistantMessage)]
            answers = self.chat_completions
            if [getattr(answer, "content", answer) for answer in answers[: len(earlier)]] == earlier:
                del answers[: len(earlier)]
                self.provided_message_count = len(answers)
        return await super().create(messages, **options)
