"""The options that the results of `codeact batch` depend on, so that a later command with other options is detected."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from autogen_codeact.cli.agents import DEFAULT_RETRIES, DEFAULT_STEPS
from autogen_codeact.cli.batch_job import BatchJob
from autogen_codeact.cli.model_choice import REPLAY
from autogen_codeact.sandbox.host.environment import parse_environment, resolve

_MAY_DIFFER = ("hosts", "hosts_file")
"""Where the sandboxes are."""


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
    found = {}
    for each in fields(job.sandbox):
        value = getattr(job.sandbox, each.name)
        if value is None or value == () or each.name in _MAY_DIFFER:
            continue
        name = names.get(each.name, f"--{each.name.replace('_', '-')}")
        if each.name == "environment":
            name, value = "--env", [_hash(str(text).encode()) if "=" in text else text for text in value]
        elif each.name == "others":
            value = [_hash(str(text).encode()) for text in value]
        elif isinstance(value, tuple):
            value = [str(item) for item in value]
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
