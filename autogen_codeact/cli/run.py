"""`codeact run` and `codeact resume`: one task, solved by an agent or a team."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import CodeExecutionEvent, TextMessage
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import ChatCompletionClient

from autogen_codeact.agents.code_search import COULD_RUN, is_cut_off
from autogen_codeact.agents.model_calls import DeadlineClient
from autogen_codeact.cli import kept_runs
from autogen_codeact.cli.approval import CodeApproval, ask_about
from autogen_codeact.cli.exec_file import read_text
from autogen_codeact.cli.jobs import NO_LOG, ChatJob, ModelChoice, ResumeJob, RunJob
from autogen_codeact.cli.models import describe_error, open_model, resumed_key, without_key
from autogen_codeact.cli.output import (
    EXIT_INTERRUPTED,
    CommandError,
    LastJsonLine,
    absolute,
    print_json,
    resume_advice,
    run_until_interrupted,
    say,
    silence_libraries,
)
from autogen_codeact.cli.progress import STARTING, THINKING, Progress, Watcher
from autogen_codeact.cli.sandbox import LANGUAGES, check_limits, make_agent, read_limits, started
from autogen_codeact.cli.sandbox_choice import with_skills
from autogen_codeact.cli.terminal import Terminal
from autogen_codeact.cli.transcript import Message, Transcript
from autogen_codeact.executors import Later
from autogen_codeact.runs import RunWaiting, load_run, recorded, resumed
from autogen_codeact.runs.agents import asks_first, set_approval
from autogen_codeact.runs.errors import RunError
from autogen_codeact.runs.plan import Plan, answered, make_plan
from autogen_codeact.runs.store import find_run, has_log, run_name
from autogen_codeact.runs.writer import LogLocked
from autogen_codeact.teams import FinalWordTermination
from codeact_sandbox import SandboxError
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.languages import find_language
from codeact_sandbox.types.result import Result

EXIT_WAITING = 4  # the run waits for an answer


class RunPrinter:
    """Prints the messages of one run. Files of the code may stay after it: then JSON names them."""

    def __init__(self, progress: Progress, end: LastJsonLine, *, team: bool, files_stay: bool = False) -> None:
        self._progress, self._end, self._team = progress, end, team
        self._json = JsonPrinter(files_stay=files_stay) if end.enabled else None
        self.watcher = progress.watcher if self._json is None else self._json.watcher
        """An observer for `executor.attach(observers=[…])`."""
        self._transcript = Transcript(Terminal(), team=team)
        self.failed: bool | None = None  # whether the last code failed; None before any code
        self._answered = self._empty = self._cut_off = self._too_long = False
        self._not_run: list[str] = []
        self.answer: str | None = None
        self.quiet = False  # whether nothing is printed but the answer

    async def follow(self, events: AsyncGenerator[Message | TaskResult, None], model: ModelChoice) -> TaskResult | None:
        """Print messages as they come, and return the result; an error that the model may have raised has its advice."""
        result = None
        try:
            async with aclosing(events) as items:
                async for event in items:
                    self._progress.follow(event)
                    if isinstance(event, TaskResult):
                        result = event
                        await self._judge(event)
                        if self._json is None and not self.quiet:
                            self._transcript.show(event)
                    else:
                        self._show(event)
        except (CommandError, SandboxError, RunError, LogLocked):
            raise
        except Exception as error:  # whatever a model client raises
            raise CommandError(f"The run failed. {describe_error(error, model)}") from error
        finally:
            self._progress.set(None)
            self._transcript.end()
        return result

    def print_problems(self) -> int:
        """Print what is wrong with the answer, and return the exit status; if only the answer is wanted, print it."""
        if self.quiet and self.answer is not None:
            print(self.answer)  # noqa: T201 - it is the output
        if self._empty:
            say("the model's answer is empty: try again, or another model")
        if self._cut_off:
            say("the model's answer ends inside a block of code")
        elif self._not_run:
            say(f"the model's answer has {' and '.join(self._not_run)} code in it that was not run")
        elif self._too_long:
            say("the model's answer was cut off: it was too long, or repeated itself")
        incomplete = self._not_run or self._cut_off or self._too_long
        return 0 if self._answered and not (self.failed or incomplete) else 1

    def _show(self, message: Message) -> None:
        if isinstance(message, CodeExecutionEvent):
            self.failed = message.result.exit_code != 0
        elif isinstance(message, TextMessage) and "exit_code" in message.metadata:
            self.failed = message.metadata["exit_code"] != "0"
        if self._json is not None:
            self._json.show(message)
        elif not self.quiet:
            self._transcript.show(message)

    async def _judge(self, result: TaskResult) -> None:
        last = result.messages[-1]
        if not isinstance(last, TextMessage) or last.source == "user":
            return
        self._empty = not last.content.strip()
        self._answered = not self._empty and await self._is_final(last)
        self.answer = last.content if self._answered else None
        if "answered_by" not in last.metadata:  # code can give code as its answer
            blocks = json.loads(last.metadata.get("not_run", "[]"))
            # Code that could run, or is of a language that sandboxes may have.
            self._not_run = sorted(
                {
                    each["language"] or each["reason"]
                    for each in blocks
                    if each["reason"] in COULD_RUN
                    or (each["reason"] == "language" and find_language(each["language"]) is not None)
                }
            )
            self._cut_off, self._too_long = is_cut_off(last.content), "cut_off" in last.metadata

    async def _is_final(self, last: TextMessage) -> bool:
        if self._team:
            final_word = FinalWordTermination("TERMINATE", sources=["coder"], languages=LANGUAGES)
            return await final_word([last]) is not None
        return "stopped" not in last.metadata


def run_task(job: RunJob, end: LastJsonLine, progress: Progress) -> int:
    """Run an agent or a team on a task and print its messages.

    The exit status is 0 with a final answer; 1 without one, if the last code failed, or if the answer has code in it that could
    have been run and was not, or is cut off; 4 if it waits for an answer; 130 after Ctrl-C, 143 after SIGTERM.
    """
    job = replace(job, task=_task(job.task))
    job.check()
    job = replace(job, sandbox=with_skills(job.sandbox))
    check_limits(job.agent, read_limits(job.agent.budget, job.model.spec))
    kept_runs.check_folder(job.save)
    silence_libraries()
    client = open_model(job.model)
    folder = job.save
    if folder == NO_LOG:
        folder = None
    elif folder is None:
        folder = kept_runs.choose_run_folder(job.task)
    end.run = folder
    if job.view and folder is None:
        raise CommandError("--view needs a run that is kept: give it a folder with --save.")
    run = _Run(job, client, folder, end, progress)
    status = EXIT_INTERRUPTED
    try:
        status = run_until_interrupted(run.run(), end.cancelled)
    finally:
        if run.page is not None:
            run.page.close(wait=status < EXIT_INTERRUPTED)
    return status


def _task(text: str) -> str:
    """Return the task that the argument of the command means."""
    if text == "-":
        return read_text("-", "the task")
    if not re.search(r"\s", text) and os.path.isfile(text):
        raise CommandError(
            f"The task is the name of a file. `codeact exec {text}` runs the code in it; "
            f"`codeact run - < {text}` gives its text to an agent; else write a sentence."
        )
    return text


class _Run:
    def __init__(
        self, job: RunJob, client: ChatCompletionClient, folder: Path | None, end: LastJsonLine, progress: Progress
    ) -> None:
        self._job, self._client, self._folder, self._end, self._progress = job, client, folder, end, progress
        self._limits = read_limits(job.agent.budget, job.model.spec)
        self.page: Any = None  # a `LivePage`, of an extra
        self._files_stay = job.sandbox.work_dir is not None
        self._printer = RunPrinter(progress, end, team=job.agent.team, files_stay=self._files_stay)
        self._printer.quiet = job.quiet

    async def run(self) -> int:
        job = self._job
        self._progress.set(STARTING)
        try:
            await self._open_page()
            async with started(job.sandbox) as executor:
                executor.attach(observers=[self._printer.watcher])
                result = await self._printer.follow(self._events(executor), job.model)
                files = [] if self._files_stay else await executor.list_files()
                self._progress.set("stopping sandbox")
        except RunWaiting as waiting:
            self._progress.set(None)
            return say_waiting(waiting, self._end)
        except BaseException as error:
            if not self._end.enabled and (advice := resume_advice(self._folder)):
                self._progress.set(None)
                (say if isinstance(error, asyncio.CancelledError) else error.add_note)(
                    advice
                )  # below an error's own line
            raise
        finally:
            self._progress.set(None)
            await self._client.close()
        if result is not None:
            self._end.finish(result, self._printer.answer)
        status = self._printer.print_problems()
        if not (self._end.enabled or job.quiet):
            if status == 0 and self._printer.failed is None:
                say("the model wrote no code, so none was run")
            kept = (
                kept_runs.print_run_location(self._folder) if self._folder is not None and has_log(self._folder) else ()
            )
            if gone := sorted(set(files).difference(kept)):
                say(f"removed with the sandbox: {', '.join(map(printable, gone))}. --work-dir FOLDER keeps files.")
        return status

    async def _open_page(self) -> None:
        if self._job.view and self._folder is not None:
            from autogen_codeact.cli.pages import LivePage  # noqa: PLC0415 - of an extra

            # What a user stops on the page ends as with Ctrl-C.
            self.page = LivePage(self._folder, lambda: os.kill(os.getpid(), signal.SIGINT))
            await self.page.open()

    def _events(self, executor: CodeExecutor) -> AsyncGenerator[Message | TaskResult, None]:
        job = self._job
        self._progress.set(THINKING)
        shown = not (job.as_json or job.quiet)
        target = make_agent(
            job.agent, self._limits, self._client, executor, stream=shown and sys.stdout.isatty(), stream_output=shown
        )
        if job.approve_later:
            set_approval(target, Later())
        elif job.approve:
            approval = _approval(self._progress)
            approval.control = self.page.control if self.page is not None else None
            set_approval(target, approval)
        if "opentelemetry.sdk.trace" in sys.modules:  # set up by `opentelemetry-instrument codeact run …`
            from autogen_codeact.telemetry import instrument  # noqa: PLC0415 - other runs must not wait for it

            instrument(target)
        if self._folder is not None:
            return recorded(target, task=job.task, path=self._folder)
        return target.run_stream(task=job.task)


def _approval(progress: Progress) -> CodeApproval:
    """Return what asks in the terminal, below no line about the progress."""

    async def ask(code: str) -> str:
        progress.set(None)
        return await ask_about(code)

    return CodeApproval(ask)


def resume_run(job: ResumeJob, end: LastJsonLine, progress: Progress) -> int:
    """Continue a run, print its new messages, and return the exit status as `codeact run` does."""
    path = end.run = find_run(job.run)
    choice = ModelChoice(api_key_env=job.api_key_env, timeout_s=job.timeout_s)
    choice.check()
    if not end.enabled and load_run(path).started.conversation:
        from autogen_codeact.cli.chat import run_chat  # noqa: PLC0415 - other runs need no chat

        return run_chat(ChatJob(choice, how=job.how, approve=job.approve, resume=str(path.absolute())))
    silence_libraries()
    return run_until_interrupted(_resume(job, path, end, progress), end.cancelled)


async def _resume(job: ResumeJob, path: Path, end: LastJsonLine, progress: Progress) -> int:
    api_key = resumed_key(job.api_key_env)
    plan = await asyncio.to_thread(make_plan, path)
    if job.deny is not None or job.question is not None or (plan.open_questions and job.approve):
        plan = await asyncio.to_thread(_answered, plan, job)
        ask = asks_first(plan, wanted=False)
    else:
        ask = asks_first(plan, wanted=job.approve)
    team = plan.started.kind == "team"
    printer = RunPrinter(progress, end, team=team)
    progress.set(STARTING)
    items = resumed(
        plan,
        api_key=api_key,
        wrap_model=lambda client: DeadlineClient(client, job.timeout_s),
        approval_func=_approval(progress) if ask else None,
        trust=job.how.trust,
        rebuild=kept_runs.rebuilds(plan, path, wanted=job.how.rebuild, trust=job.how.trust),
        on_rebuild=kept_runs.say_rebuilding,
    )
    try:
        result = await printer.follow(items, ModelChoice())
    except RunWaiting as waiting:
        progress.set(None)
        return say_waiting(waiting, end)
    except RunError as error:
        raise without_key(error, (agent.model for agent in plan.started.agents)) from error
    if result is not None:
        end.finish(result, printer.answer)
    return printer.print_problems()


def _answered(plan: Plan, job: ResumeJob) -> Plan:
    """Answer the questions that a user means, and return how the run goes on."""
    if job.approve == (job.deny is not None):
        raise CommandError("Answer with either --approve or --deny REASON.")
    names = [job.question] if job.question is not None else [each.asked.question for each in plan.open_questions]
    if not names:
        raise CommandError(f"{run_name(plan.run.folder.path)} waits for no answer: leave --deny out.")
    return answered(plan, dict.fromkeys(names, job.deny if job.deny is not None else True))


def say_waiting(waiting: RunWaiting, end: LastJsonLine) -> int:
    """Print for which answers a run waits, and return the exit status."""
    if end.enabled:
        end.end_with(
            {"type": "waiting", "outcome": "waiting", "questions": waiting.questions, "run": absolute(end.run)}
        )
    else:
        say(str(waiting))
    return EXIT_WAITING


class JsonPrinter:
    """Prints the messages of a run, those about results of code with its files and displays.

    Args:
        files_stay: Whether the files are still there after the run.
    """

    def __init__(self, *, files_stay: bool) -> None:
        self.watcher = _Results()  # an observer for `executor.attach(observers=[…])`
        self._files_stay = files_stay

    def show(self, message: Message) -> None:
        value = dict(message.dump())
        if value["type"] == "CodeExecutionEvent" or "exit_code" in value.get("metadata", {}):
            results, self.watcher.results = self.watcher.results, []
            if isinstance(result := getattr(message, "result", None), Result):
                results = [result]  # of a run that is continued, too
            value["artifacts"] = [
                {
                    "name": file.name,
                    "size": file.size,
                    "path": absolute(file.path) if self._files_stay else None,
                    "note": file.note,
                }
                for result in results
                for file in result.artifacts
            ]
            value["displays"] = [
                {
                    "name": display.name,
                    "types": list(display.data),
                    "path": absolute(display.path) if self._files_stay else None,
                }
                for result in results
                for display in result.displays
            ]
        print_json(value)


class _Results(Watcher):
    def __init__(self) -> None:
        self.results: list[Result] = []

    def block_finished(self, event: Any) -> None:
        if event.result is not None:
            self.results.append(event.result)
