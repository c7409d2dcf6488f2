"""The agents of a batch: one for each attempt, which share one connection to the model; and what a node needs for it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from autogen_core.code_executor import CodeExecutor
from autogen_core.models import AssistantMessage, ChatCompletionClient, CreateResult, LLMMessage

from autogen_codeact.agents import CodeActAgent, CodeExecutorAgent
from autogen_codeact.agents.model_calls import Items, ModelCall, ModelMiddleware
from autogen_codeact.agents.observation import UNKNOWN_END
from autogen_codeact.agents.reliable_client import ReliableClient
from autogen_codeact.batch.tasks import Task
from autogen_codeact.cli.agent_choice import AgentChoice
from autogen_codeact.cli.agents import make_agent
from autogen_codeact.cli.exit import CommandError
from autogen_codeact.cli.model_choice import REPLAY, ModelChoice, find_preset
from autogen_codeact.cli.models import find_secrets, names_secret, open_model, read_file, without_secrets
from autogen_codeact.cli.recording import RecordedModel, parse_answers
from autogen_codeact.teams import Team

# Clients read them themselves when they are made.
_OF_CLIENTS = ("OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID")
_OF_COMPONENTS = ("ANTHROPIC_", "AZURE_", "GEMINI_", "LLAMA_", "OLLAMA_", "OPENAI_")
"""What the variables begin with that a component may read; which of them it does is not known."""


@dataclass(frozen=True)
class ModelInputs:
    """Variables and the content of a file; pickled only on the way to another process of the user's, and never shown.

    Args:
        text: The content of a recording or of a component's file; None if the model is given by name.
        variables: What the variables contain that the client may read; None for one that is not set.
    """

    text: str | None = field(default=None, repr=False)
    variables: dict[str, str | None] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, model: ModelChoice) -> Self:
        """Read them on this machine."""
        if model.spec.startswith(REPLAY):
            return cls(read_file(model.spec.removeprefix(REPLAY)))
        if model.is_file:
            names = [name for name in os.environ if name.startswith(_OF_COMPONENTS)]
            return cls(read_file(model.spec), {name: os.environ[name] for name in names})
        names = [model.key_variable, *_OF_CLIENTS]
        if (variable := find_preset(model.spec).url_variable) is not None:
            names.append(variable)
        return cls(None, {name: os.environ.get(name) for name in names})

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let this process have the variables, and none of its own that would change who gets the key."""
        variables = dict(self.variables)
        if self.variables and self.text is not None:
            own = (name for name in os.environ if name.startswith(_OF_COMPONENTS))
            variables = {**dict.fromkeys(own), **variables}
        before = {name: os.environ.get(name) for name in variables}
        _set(variables)
        try:
            yield
        finally:
            _set(before)

    def secrets(self) -> set[str]:
        """Return the keys among them."""
        named = {value for name, value in self.variables.items() if value is not None and names_secret(name)}
        return named | find_secrets(self.text or "")


def _set(variables: dict[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        elif os.environ.get(name) != value:
            os.environ[name] = value


class AgentMaker:
    """Makes the agent of an attempt; it can be sent to another process, with the key, and the content of the model's file."""

    def __init__(
        self,
        agent: AgentChoice,
        model: ModelChoice,
        tell: Callable[[str], None] | None = None,
        inputs: ModelInputs | None = None,
    ) -> None:
        self._agent, self._model, self._tell, self._inputs = agent, model, tell, inputs
        self._client: ChatCompletionClient | None = None
        self._recording: _Recording | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return AgentMaker, (self._agent, self._model, None, self._inputs or ModelInputs.read(self._model))

    def __call__(self, executor: CodeExecutor, task: Task) -> CodeActAgent | CodeExecutorAgent | Team:
        """Return the agent or team for an attempt at a task."""
        self.open()
        client = self._client if self._recording is None else self._recording.client(task.id, self._model.timeout_s)
        assert client is not None
        return make_agent(self._agent, client, executor, stream=False, stream_output=False)

    def open(self) -> None:
        """Create the model client, unless there is one."""
        if self._client is not None or self._recording is not None:
            return
        self._model.check()
        inputs = self._inputs = self._inputs or ModelInputs.read(self._model)
        if self._model.spec.startswith(REPLAY):
            self._recording = _Recording(self._model.spec.removeprefix(REPLAY), inputs.text or "")
        else:
            with inputs.applied():
                client = open_model(self._model, self._tell or (lambda line: None), text=inputs.text)
            self._client = _SecretRedactor(client, self._model, inputs.secrets())

    async def close(self) -> None:
        """Close the model client."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


class _SecretRedactor(ModelMiddleware):
    """Removes keys from errors, which servers quote there: the errors are kept in rows and logs."""

    def __init__(self, client: ChatCompletionClient, model: ModelChoice, secrets: Collection[str]) -> None:
        super().__init__(client)
        self._model, self._secrets = model, secrets

    async def handle(self, call: ModelCall) -> Items:
        """Yield the answer to a call."""
        try:
            async with aclosing(call.items()) as items:
                async for item in items:
                    yield item
        except Exception as error:
            self._clean(error)
            raise

    def _clean(self, error: Exception) -> None:
        error.args = tuple(
            without_secrets(each, self._model, self._secrets) if isinstance(each, str) else each for each in error.args
        )


class _Recording:
    """Recorded answers: the same for each task, or those of each task."""

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        by_task = _by_task(text)
        self._common = parse_answers(text, name) if by_task is None else None
        self._by_task = {
            id_: parse_answers(json.dumps(answers), f"{name}: {id_}") for id_, answers in (by_task or {}).items()
        }

    def client(self, id_: str, timeout_s: float) -> ChatCompletionClient:
        """Return a client with the answers for a task, from the first one on."""
        answers: Sequence[Any] | None = self._common or self._by_task.get(id_)
        if answers is None:
            raise CommandError(f"{self._name} has no answers for the task {id_}")
        return ReliableClient(_ContinuedRecording(answers), timeout_s)


class _ContinuedRecording(RecordedModel):
    """A recording for an attempt, which may continue a run log: the answers in the log are not given again.

    Except the one whose code was interrupted: a recording can't look at what is there, as a model is told to do.
    """

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:
        """Return the next answer."""
        if not self.create_calls:
            places = [place for place, each in enumerate(messages) if isinstance(each, AssistantMessage)]
            if places and any(UNKNOWN_END in str(each.content) for each in messages[places[-1] :]):
                del places[-1]
            self.leave_out([messages[place].content for place in places])
        return await super().create(messages, **options)


def _by_task(text: str) -> dict[str, Any] | None:
    """Return the answers of a recording that has an object `tasks`: a list of answers by the task's id."""
    try:
        recorded = json.loads(text)
    except ValueError:
        return None
    tasks = recorded.get("tasks") if isinstance(recorded, dict) else None
    return tasks if isinstance(tasks, dict) else None
