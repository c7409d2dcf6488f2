"""`codeact doctor`: is everything there, do the limits hold, and what to do about each lack."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Literal

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor

from autogen_codeact.cli.check import Check, Status
from autogen_codeact.cli.ending import CommandError, run_until_interrupted
from autogen_codeact.cli.holes import hole_checks, versions
from autogen_codeact.cli.leftovers import check_leftovers
from autogen_codeact.cli.model_server import check_model, without_login
from autogen_codeact.cli.output import print_json
from autogen_codeact.cli.probe import PROBE
from autogen_codeact.cli.sandbox import SandboxChoice, started
from autogen_codeact.cli.screen import Screen, amount, seconds
from autogen_codeact.executors import DEFAULT_IMAGE, Limits, SandboxError
from autogen_codeact.sandbox.backends.bubblewrap.launcher import check_bubblewrap
from autogen_codeact.sandbox.backends.docker.engine import connect, engine_errors
from autogen_codeact.sandbox.backends.docker.image import FALLBACK_IMAGE
from autogen_codeact.sandbox.backends.docker.image_requests import find_image
from autogen_codeact.sandbox.limits import parse_size

if TYPE_CHECKING:
    import docker

_ROUND_TRIPS = 5
_SANDBOX_TIMEOUT_S = 20.0
_MARKS: dict[Status, tuple[str, Literal["green", "red", "yellow"]]] = {
    "ok": ("ok", "green"),
    "lack": ("LACK", "red"),
    "note": ("note", "yellow"),
}


def run_doctor(image: str | None, base_url: str | None, *, as_json: bool) -> int:
    """Check everything and print it.

    Args:
        image: Docker image; None for the default one, or what takes its place.
        base_url: Model server; None for the one in OPENAI_BASE_URL, if any.
        as_json: Print one JSON object.

    Returns:
        0 when nothing that is needed lacks, else 1.
    """
    checks: list[Check] = []
    screen = None if as_json else Screen()

    def add(check: Check) -> None:
        checks.append(check)
        if screen is not None:
            _show(screen, check)

    interrupted = _check_all(image, base_url, add)
    if interrupted:
        return interrupted
    good = all(check.status != "lack" for check in checks)
    if screen is None:
        print_json({"ok": good, "checks": [asdict(check) for check in checks]})
    else:
        screen.line()
        screen.line("All that is needed is there." if good else "Something that is needed lacks: see above.")
    return 0 if good else 1


def _show(screen: Screen, check: Check) -> None:
    mark, style = _MARKS[check.status]
    screen.fact(f"{mark:<5}{check.name}", check.detail, style, indent=20)
    if check.advice:
        screen.fact("", f"-> {check.advice}", indent=20)


def _check_all(image: str | None, base_url: str | None, add: Callable[[Check], None]) -> int:
    status = 0
    choice = _check_places(image, add)
    if choice is not None:
        status = run_until_interrupted(_check_sandbox(choice, add))
    add(check_leftovers())
    for check in check_model(base_url or os.environ.get("OPENAI_BASE_URL")):
        add(check)
    return status


def _check_places(image: str | None, add: Callable[[Check], None]) -> SandboxChoice | None:
    """Look for Docker and bubblewrap; returns what is to be tried, the first that can be."""
    alternative = check_bubblewrap_here()
    try:
        with closing(connect()) as client:
            add(check_engine(client))
            for check in check_holes(client):
                add(check)
            found = check_image(client, image)
    except SandboxError as error:
        # One sandbox is enough, unless an image was asked for.
        needed = image is not None or alternative.status != "ok"
        add(Check("engine", "lack" if needed else "note", "no Docker engine can be used", str(error)))
        add(alternative)
        for check in hole_checks({"Linux": platform.release()} if sys.platform == "linux" else {}):
            if check.name == "Linux":
                add(check)
        return None if needed else SandboxChoice("bubblewrap", timeout=_SANDBOX_TIMEOUT_S)
    add(found)
    add(alternative)
    if found.status == "lack":
        return None
    usable = image or (DEFAULT_IMAGE if found.status == "ok" else FALLBACK_IMAGE)
    return SandboxChoice("docker", usable, timeout=_SANDBOX_TIMEOUT_S)


def check_bubblewrap_here() -> Check:
    """See whether bubblewrap, the sandbox for machines without Docker, works here."""
    try:
        check_bubblewrap()
    except SandboxError as error:
        return Check("bubblewrap", "note", "can't be used", str(error))
    return Check("bubblewrap", "ok", "works; with --sandbox bubblewrap, or where no engine answers")


def check_engine(client: docker.APIClient) -> Check:
    """Describe the engine.

    Args:
        client: The engine.
    """
    sdk: Any = client
    with engine_errors("asking the engine about itself"):
        version, info = sdk.version(api_version=False), sdk.info()
    words = [
        f"Docker {version['Version']} at {without_login(_address())}",
        f"API {sdk.api_version}",
        f"cgroup v{info.get('CgroupVersion', '1')}",
        str(info.get("OperatingSystem", "unknown system")),
    ]
    return Check("engine", "ok", ", ".join(words))


def check_holes(client: docker.APIClient) -> Iterable[Check]:
    """Look for known ways out in the versions of what a container stands on.

    Args:
        client: The engine.
    """
    sdk: Any = client
    with engine_errors("asking the engine for its versions"):
        return hole_checks(versions(sdk.version(api_version=False)))


def _address() -> str:
    from docker.context import ContextAPI  # noqa: PLC0415 - only an engine that answers needs it

    if named := os.environ.get("DOCKER_HOST"):
        return named
    context = ContextAPI.get_context(os.environ.get("DOCKER_CONTEXT"))
    return str(context.Host).replace("http+unix://", "unix://") if context is not None else "the default socket"


def check_image(client: docker.APIClient, image: str | None) -> Check:
    """Look for an image to run; nothing is pulled.

    Args:
        client: The engine.
        image: The user's choice, None for the default one.
    """
    wanted = image if image is not None else DEFAULT_IMAGE
    try:
        found = find_image(client, wanted)
        if found is not None:
            return Check("image", "ok", f"{wanted} ({amount(int(found['Size']))})")
    except ValueError as error:
        return Check("image", "lack", str(error), "Give the name of an image with --image.")
    if image is not None:
        return Check("image", "lack", f"{wanted} is not here", f"docker pull {wanted}")
    advice = "Run `codeact image build` for the image with numpy, pandas, scipy, sympy and matplotlib."
    if find_image(client, FALLBACK_IMAGE) is not None:
        return Check("image", "note", f"{wanted} is not here; {FALLBACK_IMAGE} takes its place", advice)
    return Check("image", "lack", f"{wanted} is not here", advice)


async def _check_sandbox(choice: SandboxChoice, add: Callable[[Check], None]) -> int:
    begun = time.monotonic()
    try:
        async with started(choice) as executor:
            took = seconds(time.monotonic() - begun)
            seen = json.loads(await _output(executor, PROBE))
            add(Check("sandbox", "ok", f"{choice.kind}, started in {took}, Python {seen['python']}"))
            for check in limit_checks(seen, Limits()):
                add(check if choice.kind == "docker" else _without_engine(check, seen))
            add(await _round_trip(executor))
    except (SandboxError, CommandError, ValueError) as error:
        add(Check("sandbox", "lack", "it can't be used", str(error)))
    return 0


def _without_engine(check: Check, seen: dict[str, Any]) -> Check:
    """What holds in bubblewrap where it may make no control group."""
    if check.status == "lack" and check.name == "memory" and seen["memory"] is None:
        detail = f"at most {seen['address_space']:,} bytes a process, not for all together"
        advice = "Start as root, or where systemd lets this user make control groups; or use Docker."
        return Check("memory", "note", detail, advice)
    if check.status == "lack" and check.name == "processes" and seen["pids"] is None:
        return Check("processes", "ok", f"at most {seen['nproc']:,} at once")
    return replace(check, advice="Say so where this project is developed." if check.advice else "")


async def _output(executor: CodeExecutor, code: str) -> str:
    result = await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())
    if result.exit_code != 0:
        raise CommandError(
            f"a block that looks around ended with exit code {result.exit_code}: {result.output.strip()}"
        )
    return result.output


async def _round_trip(executor: CodeExecutor) -> Check:
    times = []
    for number in range(_ROUND_TRIPS):
        begun = time.monotonic()
        answer = await _output(executor, f"print({number} * 7)")
        times.append(time.monotonic() - begun)
        if answer != f"{number * 7}\n":
            return Check("block", "lack", f"print({number} * 7) gave {answer!r}", "Try another image with --image.")
    return Check("block", "ok", f"runs and answers in {statistics.median(times) * 1000:.1f} ms")


def limit_checks(seen: dict[str, Any], limits: Limits) -> Iterable[Check]:
    """Compare what code in the sandbox finds with what it should.

    Args:
        seen: What the probe printed.
        limits: The limits that the sandbox was started with.
    """
    memory = parse_size(limits.memory)
    cgroup = "The engine does not enforce it: see the warnings at the end of `docker info`."
    odd = "The engine did not apply it: is it an old or a foreign one? See `docker info`."
    yield _limit("network", seen["interfaces"] == ["lo"] and not seen["connects"], _network(seen), odd)
    held = f"{'none' if not seen['capabilities'] else hex(seen['capabilities'])}, also none to be had"
    yield _limit("capabilities", not (seen["capabilities"] or seen["bounding"]), held, odd)
    yield _limit("privileges", seen["no_new_privs"], f"no new ones, seccomp mode {seen['seccomp']}", odd)
    yield _limit("user", 0 not in (seen["uid"], seen["gid"]), f"uid {seen['uid']}, gid {seen['gid']}", odd)
    root = "read-only" if not seen["root_writable"] else "writable"
    yield _limit("root", not seen["root_writable"], root, odd)
    yield _limit("memory", seen["memory"] == memory, _of(seen["memory"], memory, "bytes"), cgroup)
    yield _limit("processes", seen["pids"] == limits.pids, _of(seen["pids"], limits.pids, "at once"), cgroup)
    yield _limit("open files", seen["nofile"] == limits.nofile, _of(seen["nofile"], limits.nofile, "a process"), odd)
    yield _isolation(seen["landlock"], signals=seen["signals_reach_others"])


def _isolation(version: int, *, signals: bool) -> Check:
    """Check whether blocks that run at the same time in one sandbox are isolated from each other.

    Args:
        version: Landlock's version in the sandbox; version 1 can't be used.
        signals: Whether a block's signals reach the processes of others.
    """
    if version < 2:
        advice = (
            "Isolation needs Linux 5.19 or later with `landlock` in /sys/kernel/security/lsm, and a seccomp profile that "
            "allows it. Until then blocks that may call host tools run alone."
        )
        return Check("isolation", "note", "blocks of one sandbox are not isolated: Landlock is not available", advice)
    detail = f"blocks of one sandbox are isolated from each other: Landlock ABI {version}"
    if signals:
        return Check(
            "isolation", "note", f"{detail}, except signals", "Isolation of signals needs Linux 6.12 or later."
        )
    return Check("isolation", "ok", detail)


def _limit(name: str, holds: bool, detail: str, advice: str) -> Check:
    return Check(name, "ok", detail) if holds else Check(name, "lack", detail, advice)


def _network(seen: dict[str, Any]) -> str:
    reached = "a connection outwards was possible" if seen["connects"] else "no way out"
    return f"{', '.join(seen['interfaces'])} only, {reached}" if seen["interfaces"] == ["lo"] else reached


def _of(found: int | None, wanted: int, unit: str) -> str:
    if found == wanted:
        return f"at most {wanted:,} {unit}"
    return f"{'no limit to be seen' if found is None else f'{found:,}'} instead of {wanted:,} {unit}"
