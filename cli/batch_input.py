"""What `codeact batch` works on: its tasks, the settings in its options, what results depend on, and the agents of attempts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from autogen_core.code_executor import CodeExecutor
from autogen_core.models import AssistantMessage, ChatCompletionClient, CreateResult, LLMMessage
from pydantic import ValidationError

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.budget import Prices
from autogen_codeact.agents.model_calls import DeadlineClient
from autogen_codeact.agents.observation import UNKNOWN_END
from autogen_codeact.batch.settings import BatchSettings
from autogen_codeact.batch.tasks import Task
from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.jobs import BatchJob
from autogen_codeact.cli.model_choice import REPLAY
from autogen_codeact.cli.models import open_model, read_file
from autogen_codeact.cli.recording import RecordedModel, parse_answers
from autogen_codeact.cli.sandbox import Limits, check_limits, make_agent, read_limits
from autogen_codeact.teams import Team

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
        wrong = [(str(each["loc"][0]).removesuffix("_s"), each["msg"]) for each in error.errors()]
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


class AgentMaker:
    """Makes the agent of an attempt."""

    def __init__(self, job: BatchJob) -> None:
        self._agent, self._model, self._limits = job.agent, job.model, _limits_of_a_task(job)
        check_limits(self._agent, self._limits)
        self._client: ChatCompletionClient | None = None
        self._recording: _Recording | None = None

    def __call__(self, executor: CodeExecutor, task: Task) -> CodeActAgent | CodeExecutorAgent | Team:
        """Return the agent or team for an attempt at a task."""
        client = self._client if self._recording is None else self._recording.client(task.id, self._model.timeout_s)
        assert client is not None
        return make_agent(self._agent, self._limits, client, executor, stream=False, stream_output=False)

    def open(self) -> None:
        """Create the model client."""
        self._model.check()
        if self._model.spec.startswith(REPLAY):
            name = self._model.spec.removeprefix(REPLAY)
            self._recording = _Recording(name, read_file(name))
        else:
            self._client = open_model(self._model)

    async def close(self) -> None:
        """Close the model client."""
        if self._client is not None:
            await self._client.close()


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
    """A recording for an attempt, which may continue a run log: the answers in the log are not given again.

    Except the one whose code was interrupted: a recording can't look at what is there, as a model is told to do.
    """

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:
        if not self.create_calls:
            places = [place for place, each in enumerate(messages) if isinstance(each, AssistantMessage)]
            if places and any(UNKNOWN_END in str(each.content) for each in messages[places[-1] :]):
                del places[-1]
            earlier, answers = [messages[place].content for place in places], self.chat_completions
            if [getattr(answer, "content", answer) for answer in answers[: len(earlier)]] == earlier:
                del answers[: len(earlier)]
                self.provided_message_count = len(answers)
        return await super().create(messages, **options)
