"""`codeact doctor`: checks of the engine, the image, the sandbox's limits and the model, with advice for what is missing."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor

from autogen_codeact import __version__
from autogen_codeact.cli.exit import CommandError, run_until_interrupted
from autogen_codeact.cli.output import print_json
from autogen_codeact.cli.probe import PROBE
from autogen_codeact.cli.sandbox import started
from autogen_codeact.cli.sandbox_choice import SandboxChoice
from autogen_codeact.cli.terminal import Terminal, format_size
from autogen_codeact.executors.capabilities import capabilities_of
from codeact_sandbox import Limits, SandboxError
from codeact_sandbox.backends.bubblewrap.launcher import check_bubblewrap
from codeact_sandbox.backends.docker.engine import connect, engine_errors
from codeact_sandbox.backends.docker.image import FALLBACK_IMAGE
from codeact_sandbox.backends.docker.image_requests import find_image
from codeact_sandbox.integrations.command import all_leftovers
from codeact_sandbox.types import version
from codeact_sandbox.types.filenames import printable
from codeact_sandbox.types.result import format_duration

if TYPE_CHECKING:
    import docker

_SANDBOX_TIMEOUT_S = 20.0
MAX_LEFTOVERS = 10
Status = Literal["ok", "lack", "note"]
_MARKS: dict[Status, tuple[str, Literal["green", "red", "yellow"]]] = {
    "ok": ("ok", "green"),
    "lack": ("LACK", "red"),
    "note": ("note", "yellow"),
}

_ADVISORIES = {
    "Docker": "https://docs.docker.com/security/security-announcements/",
    "runc": "https://github.com/opencontainers/runc/security/advisories",
    "Linux": "https://docs.kernel.org/process/cve.html",
}

_AS_ROOT = "Start as root, or where systemd lets this user create control groups; or use Docker."


@dataclass(frozen=True)
class Check:
    """The result of one check: `lack` if something necessary is missing or wrong, `note` if it is only good to know."""

    name: str
    status: Status
    detail: str
    advice: str = ""


AddCheck = Callable[[Check], None]


def run_doctor(image: str | None, *, as_json: bool) -> int:
    """Run all checks and print them."""
    checks: list[Check] = []
    terminal = None if as_json else Terminal()

    def add(check: Check) -> None:
        checks.append(check)
        if terminal is not None:
            mark, style = _MARKS[check.status]
            terminal.field(f"{mark:<5}{check.name}", check.detail, style, indent=20)
            if check.advice:
                terminal.field("", f"-> {check.advice}", indent=20)

    ours = f"autogen-codeact {__version__}, codeact-sandbox {version.__version__}, image {version.DEFAULT_IMAGE}"
    add(Check("packages", "ok", ours))
    choice = _check_host(image, add)
    interrupted = run_until_interrupted(_check_sandbox(choice, add)) if choice is not None else 0
    add(check_leftovers())
    if interrupted:
        return interrupted
    good = all(check.status != "lack" for check in checks)
    if terminal is None:
        print_json({"ok": good, "checks": [asdict(check) for check in checks]})
    else:
        terminal.line()
        terminal.line("Everything needed is available." if good else "Something is missing: see LACK above.")
    return 0 if good else 1


def _check_host(image: str | None, add: AddCheck) -> SandboxChoice | None:
    """Look for Docker and bubblewrap; return the sandbox to test: one is enough, unless an option requests Docker."""
    bubblewrap = Check("bubblewrap", "ok", "works; used with --sandbox bubblewrap, or if no engine answers")
    try:
        check_bubblewrap()
    except SandboxError as error:
        bubblewrap = Check("bubblewrap", "note", "can't be used", str(error))
    needed = image is not None or bubblewrap.status != "ok"
    found = None
    try:
        with closing(connect()) as client:
            _check_engine(client, add)
            found = _check_image(client, image)
            add(found)
    except SandboxError as error:
        add(Check("engine", "lack" if needed else "note", "no Docker engine can be used", str(error)))
    add(bubblewrap)
    if found is None:
        add(_versions({"Linux": platform.release()}))
        return None if needed else SandboxChoice("bubblewrap", mode="process", timeout=_SANDBOX_TIMEOUT_S)
    if found.status == "lack":
        return None
    usable = image or (version.DEFAULT_IMAGE if found.status == "ok" else FALLBACK_IMAGE)
    return SandboxChoice("docker", usable, "process", timeout=_SANDBOX_TIMEOUT_S)


def _check_engine(client: docker.APIClient, add: AddCheck) -> None:
    sdk: Any = client
    with engine_errors("asking the engine about itself"):
        version, info = sdk.version(api_version=False), sdk.info()
    details = [
        f"Docker {version['Version']} at {without_login(os.environ.get('DOCKER_HOST') or 'the address that `docker` uses')}",
        f"API {sdk.api_version}",
        f"cgroup v{info.get('CgroupVersion', '1')}",
        str(info.get("OperatingSystem", "unknown system")),
        f"runtimes {', '.join(sorted(name for name in info.get('Runtimes') or () if '.' not in name))}",
    ]
    add(Check("engine", "ok", ", ".join(details)))
    add(_versions(engine_versions(version)))


def without_login(url: str) -> str:
    """Return the address without user and password."""
    return url.replace(urlsplit(url).netloc.rpartition("@")[0] + "@", "") if "@" in urlsplit(url).netloc else url


def engine_versions(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of the software under a container, by name."""
    components = {str(item.get("Name")): item for item in answer.get("Components") or ()}
    runc = components.get("runc") or {}
    # Only this field has the patch level of a distribution's package.
    full, short = str((runc.get("Details") or {}).get("GitCommit", "")), str(runc.get("Version", ""))
    found = {
        "Docker": str(answer.get("Version", "")),
        "runc": full if full.startswith(short) else short,
        "Linux": str(answer.get("KernelVersion", "")),
    }
    return {name: version for name, version in found.items() if version}


def _versions(versions: Mapping[str, str]) -> Check:
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    pages = " ".join(_ADVISORIES[name] for name in versions if name in _ADVISORIES)
    return Check("versions", "ok", named, f"Published vulnerabilities: {pages}")


def _check_image(client: docker.APIClient, image: str | None) -> Check:
    """Look for the image to run; nothing is pulled."""
    name = image if image is not None else version.DEFAULT_IMAGE
    try:
        found = find_image(client, name)
        if found is not None:
            return Check("image", "ok", f"{name} ({format_size(int(found['Size']))})")
    except ValueError as error:
        return Check("image", "lack", str(error), "Give the name of an image with --image.")
    if image is not None:
        return Check("image", "lack", f"{name} is missing", f"docker pull {name}")
    advice = "Run `codeact image build` for the image with numpy, pandas, scipy, sympy and matplotlib."
    if find_image(client, FALLBACK_IMAGE) is not None:
        return Check("image", "note", f"{name} is missing; {FALLBACK_IMAGE} is used", advice)
    return Check("image", "lack", f"{name} is missing", advice)


async def _check_sandbox(choice: SandboxChoice, add: AddCheck) -> int:
    begun = time.monotonic()
    try:
        async with started(choice) as executor:
            took = format_duration(time.monotonic() - begun)
            probed = json.loads(await _output(executor, PROBE))
            add(Check("sandbox", "ok", f"{choice.kind}, started in {took}, Python {probed['python']}"))
            found = capabilities_of(executor).facts
            limits = Limits(memory=(await found.facts()).memory_bytes) if found is not None else Limits()
            for check in limit_checks(probed, limits):
                add(check if choice.kind == "docker" else _for_bubblewrap(check, probed))
            begun, answer = time.monotonic(), await _output(executor, "print(6 * 7)")
            took = format_duration(time.monotonic() - begun)
            wrong = Check("block", "lack", f"print(6 * 7) gave {answer!r}", "Try another image with --image.")
            add(Check("block", "ok", f"one block takes {took}") if answer == "42\n" else wrong)
    except (SandboxError, CommandError, ValueError) as error:
        add(Check("sandbox", "lack", "can't be used", str(error)))
    return 0


def _for_bubblewrap(check: Check, probed: dict[str, Any]) -> Check:
    """Replace the checks of control groups, which an ordinary user may not be allowed to create."""
    if check.status == "lack" and check.name == "memory" and probed["memory"] is None:
        detail = f"at most {probed['address_space']:,} bytes for each process; no limit for all processes together"
        return replace(check, status="note", detail=detail, advice=_AS_ROOT)
    if check.status == "lack" and check.name == "processes" and probed["pids"] is None:
        return replace(check, status="ok", detail=f"at most {probed['nproc']:,} at once", advice="")
    return replace(check, advice="Please report this to the developers of autogen-codeact." if check.advice else "")


async def _output(executor: CodeExecutor, code: str) -> str:
    result = await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())
    if result.exit_code != 0:
        raise CommandError(f"a test block ended with exit code {result.exit_code}: {result.output.strip()}")
    return result.output


def limit_checks(probed: dict[str, Any], limits: Limits) -> Iterable[Check]:
    """Compare the limits that code finds in the sandbox with the ones that were set."""
    acquired = hex(probed["capabilities"]) if probed["capabilities"] else "none"
    ignored = "The engine did not apply this: is it very old, or not Docker's own? See `docker info`."
    cgroup = "The engine does not enforce it: see the warnings at the end of `docker info`."

    def check(name: str, holds: bool, detail: str, advice: str = ignored) -> Check:
        return Check(name, "ok", detail) if holds else Check(name, "lack", detail, advice)

    def limit(name: str, found: int | None, expected: int, unit: str, advice: str = ignored) -> Check:
        wrong = f"{'no limit found' if found is None else f'{found:,}'} instead of {expected:,} {unit}"
        holds = found == expected
        return check(name, holds, f"at most {expected:,} {unit}" if holds else wrong, advice)

    names, alone = ", ".join(probed["interfaces"]), probed["interfaces"] == ["lo"]
    network = f"{'loopback only' if alone else f'interfaces {names}'}, {'connections' if probed['connects'] else 'no connection'}"
    yield check("network", alone and not probed["connects"], f"{network} to the outside")
    bounding = "none can be acquired" if not probed["bounding"] else f"{probed['bounding']:#x} can be acquired"
    yield check("capabilities", not (probed["capabilities"] or probed["bounding"]), f"{acquired}, and {bounding}")
    yield check("privileges", probed["no_new_privs"], f"no_new_privs, seccomp mode {probed['seccomp']}")
    yield check("user", 0 not in (probed["uid"], probed["gid"]), f"uid {probed['uid']}, gid {probed['gid']}")
    yield check("root", not probed["root_writable"], "writable" if probed["root_writable"] else "read-only")
    yield limit("memory", probed["memory"], limits.memory_bytes, "bytes", cgroup)
    yield limit("processes", probed["pids"], limits.pids, "at once", cgroup)
    yield limit("open files", probed["nofile"], limits.nofile, "for each process")
    yield _check_isolation(probed["landlock"], signals=probed["signals_reach_others"])


def _check_isolation(version: int, *, signals: bool) -> Check:
    found = Check("isolation", "ok", f"blocks of one sandbox are isolated from each other: Landlock ABI {version}")
    if version < 2:
        advice = (
            "Isolation needs Linux 5.19 or later with `landlock` in /sys/kernel/security/lsm, and a seccomp profile that "
            "allows it. Until then blocks that may call host tools run alone."
        )
        return replace(
            found,
            status="note",
            detail="blocks of one sandbox are not isolated: Landlock is not available",
            advice=advice,
        )
    if signals:
        advice = "Isolation of signals needs Linux 6.12 or later."
        return replace(found, status="note", detail=f"{found.detail}, except signals", advice=advice)
    return found


def check_leftovers() -> Check:
    """List what dead processes have left."""
    with all_leftovers(lambda _: None) as items:  # an engine that does not answer is reported by its own check
        names = [f"{item.kind} {printable(item.name)} ({printable(item.reason)})" for item in items]
        orphans = sum(item.orphan for item in items)
    if not names:
        return Check("leftovers", "ok", "no leftover sandboxes")
    more = f" and {len(names) - MAX_LEFTOVERS} more" if len(names) > MAX_LEFTOVERS else ""
    advice = f"`codeact clean` removes {orphans} of {len(names)}; --all removes all of them, if nobody else uses them."
    return Check("leftovers", "note", ", ".join(names[:MAX_LEFTOVERS]) + more, advice)
