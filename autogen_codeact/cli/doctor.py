"""`codeact doctor`: checks of the engine, the image and what holds the sandbox in, with advice for what is missing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from autogen_codeact.cli.output import CommandError, print_json, run_until_interrupted
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
from codeact_sandbox.types.result import CodeFailed, format_duration

if TYPE_CHECKING:
    import docker

PROBE = """\
import ctypes, json, os, platform, socket

def text(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""

def number(*paths):
    for path in paths:
        if text(path).strip().isdigit():
            return int(text(path))

def writable(path):
    try:
        with open(path, "w"):
            return True
    except OSError:
        return False

def connects():
    # An address for documentation. To connect a UDP socket sends nothing, and fails without a route.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        try:
            udp.connect(("192.0.2.1", 53))
        except OSError:
            return False
        return True

status = dict(line.split(":", 1) for line in text("/proc/self/status").splitlines() if ":" in line)
group = "/sys/fs/cgroup/"
print(json.dumps({
    "python": platform.python_version(),
    "interfaces": sorted(name for _, name in socket.if_nameindex()),
    "connects": connects(),
    "capabilities": int(status["CapEff"], 16) | int(status["CapPrm"], 16) | int(status["CapBnd"], 16),
    "no_new_privs": int(status["NoNewPrivs"]) == 1,
    "seccomp": int(status["Seccomp"]),
    "uid": os.getuid(),
    "gid": os.getgid(),
    "root_writable": writable("/codeact-probe") or writable("/usr/codeact-probe"),
    "memory": number(group + "memory.max", group + "memory/memory.limit_in_bytes"),
    "pids": number(group + "pids.max", group + "pids/pids.max"),
}))
"""
"""A program for the sandbox that prints what holds it in."""
_SANDBOX_TIMEOUT_S = 20.0
MAX_LEFTOVERS = 10
Status = Literal["ok", "lack", "note"]
_MARKS: dict[Status, tuple[str, Literal["green", "red", "yellow"]]] = {
    "ok": ("ok", "green"),
    "lack": ("LACK", "red"),
    "note": ("note", "yellow"),
}
_IGNORED = "The engine does not apply this: is it very old, or not Docker's own? See `docker info`."
_AS_ROOT = "Start as root, or where systemd lets this user create control groups; or use Docker."


@dataclass(frozen=True)
class Check:
    """The result of one check: `lack` if something necessary is missing or wrong, `note` if it is only good to know."""

    name: str
    status: Status
    detail: str
    advice: str = ""


class _Report:
    """The checks that were made; each is printed at once, unless all are wanted as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self.checks: list[Check] = []
        self._terminal = None if as_json else Terminal()

    def add(self, check: Check) -> None:
        self.checks.append(check)
        if self._terminal is not None:
            mark, style = _MARKS[check.status]
            self._terminal.field(f"{mark:<5}{check.name}", check.detail, style, indent=20)
            if check.advice:
                self._terminal.field("", f"-> {check.advice}", indent=20)

    def finish(self) -> int:
        good = all(check.status != "lack" for check in self.checks)
        if self._terminal is None:
            print_json({"ok": good, "checks": [asdict(check) for check in self.checks]})
        else:
            self._terminal.line()
            self._terminal.line("Everything needed is available." if good else "Something is missing: see LACK above.")
        return 0 if good else 1


def run_doctor(image: str | None, *, as_json: bool) -> int:
    report = _Report(as_json=as_json)
    choice = _check_host(image, report)
    interrupted = run_until_interrupted(_check_sandbox(choice, report)) if choice is not None else 0
    report.add(check_leftovers())
    return interrupted or report.finish()


def _check_host(image: str | None, report: _Report) -> SandboxChoice | None:
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
            report.add(_check_engine(client))
            found = _check_image(client, image)
            report.add(found)
    except SandboxError as error:
        report.add(Check("engine", "lack" if needed else "note", "no Docker engine can be used", str(error)))
    report.add(bubblewrap)
    if found is None:
        return None if needed else SandboxChoice("bubblewrap", timeout=_SANDBOX_TIMEOUT_S, others=["mode=process"])
    if found.status == "lack":
        return None
    usable = image or (version.DEFAULT_IMAGE if found.status == "ok" else FALLBACK_IMAGE)
    return SandboxChoice("docker", timeout=_SANDBOX_TIMEOUT_S, others=["mode=process", f"image={usable}"])


def _check_engine(client: docker.APIClient) -> Check:
    sdk: Any = client
    with engine_errors("asking the engine about itself"):
        versions, info = sdk.version(api_version=False), sdk.info()
    detail = (
        f"Docker {versions['Version']}, Linux {versions.get('KernelVersion')}, cgroup v{info.get('CgroupVersion', '1')}"
    )
    return Check("engine", "ok", detail)


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


async def _check_sandbox(choice: SandboxChoice, report: _Report) -> int:
    begun = time.monotonic()
    try:
        async with started(choice) as executor:
            took = format_duration(time.monotonic() - begun)
            result = (await executor.run(PROBE)).check()
            probed, block = json.loads(result.output), format_duration(result.duration_s)
            detail = f"{choice.kind}, Python {probed['python']}, started in {took}; one block took {block}"
            report.add(Check("sandbox", "ok", detail))
            found = capabilities_of(executor).sandbox
            limits = Limits(memory=(await found.facts()).memory_bytes) if found is not None else Limits()
            for check in limit_checks(probed, limits, in_docker=choice.kind == "docker"):
                report.add(check)
    except (SandboxError, CommandError, CodeFailed, ValueError) as error:
        report.add(Check("sandbox", "lack", "can't be used", str(error)))
    return 0


def limit_checks(probed: dict[str, Any], limits: Limits, *, in_docker: bool = True) -> Iterator[Check]:
    """Compare what code finds in the sandbox with what was set."""

    def check(name: str, found: str, wrong: Sequence[str]) -> Check:
        return Check(name, "lack", ", ".join(wrong), _IGNORED) if wrong else Check(name, "ok", found)

    others = [name for name in probed["interfaces"] if name != "lo"]
    wrong = [f"interfaces {', '.join(others)}"] if others else []
    wrong += ["connections to the outside"] if probed["connects"] else []
    yield check("network", "loopback only, no connection to the outside", wrong)

    wrong = [f"capabilities {probed['capabilities']:#x}"] if probed["capabilities"] else []
    wrong += [] if probed["no_new_privs"] else ["no no_new_privs"]
    wrong += [] if probed["seccomp"] == 2 or not in_docker else ["no seccomp filter"]
    wrong += ["root in the sandbox"] if 0 in (probed["uid"], probed["gid"]) else []
    wrong += ["a root folder that is writable"] if probed["root_writable"] else []
    held = f"uid {probed['uid']}, no capabilities, no_new_privs, seccomp mode {probed['seccomp']}, read-only root"
    yield check("privileges", held, wrong)

    set_ = {"memory": f"{limits.memory_bytes:,} bytes", "pids": f"{limits.pids:,} processes"}
    wanted = {"memory": limits.memory_bytes, "pids": limits.pids}
    if not in_docker and (probed["memory"], probed["pids"]) == (None, None):
        yield Check("limits", "note", "for each process only, no limit for all processes together", _AS_ROOT)
        return
    wrong = [f"not {set_[name]} but {probed[name] or 'no limit'}" for name in wanted if probed[name] != wanted[name]]
    yield check("limits", f"at most {set_['memory']} and {set_['pids']}", wrong)


def check_leftovers() -> Check:
    with all_leftovers(lambda _: None) as items:  # an engine that does not answer is reported by its own check
        names = [f"{item.kind} {printable(item.name)} ({printable(item.reason)})" for item in items]
        orphans = sum(item.orphan for item in items)
    if not names:
        return Check("leftovers", "ok", "no leftover sandboxes")
    more = f" and {len(names) - MAX_LEFTOVERS} more" if len(names) > MAX_LEFTOVERS else ""
    advice = f"`codeact clean` removes {orphans} of {len(names)}; --all removes all of them, if no one else uses them."
    return Check("leftovers", "note", ", ".join(names[:MAX_LEFTOVERS]) + more, advice)
