"""The files that code in a bubblewrap sandbox can see, as arguments of bwrap: system folders, parts of /etc, its Python."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from codeact_sandbox.types.errors import SandboxStartError
from codeact_sandbox.types.paths import HOME

NOBODY = 65534
SYSTEM = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
# Of the host's /etc only what programs need and what does not describe its users.
ETC = (
    "alternatives", "crypto-policies", "fonts", "gai.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic",
    "matplotlibrc", "mime.types", "os-release", "perl", "pki/ca-trust/extracted", "pki/tls/certs", "pki/tls/openssl.cnf",
    "protocols", "R", "services", "ssl/certs", "ssl/openssl.cnf",
)  # fmt: skip
ETC_PATTERNS = ("java-*", "python3*")
ETC_FILES = {
    "passwd": f"root:x:0:0:root:/:/usr/sbin/nologin\nnobody:x:{NOBODY}:{NOBODY}:nobody:{HOME}:/bin/sh\n",
    "group": f"root:x:0:\nnogroup:x:{NOBODY}:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
# Parts of /proc that describe the whole machine.
HIDDEN_FILES = ("kcore", "key-users", "keys", "kmsg", "latency_stats", "sched_debug", "timer_list")
HIDDEN_FOLDERS = ("acpi", "asound", "scsi")
MAX_LINKS = 40


def system_arguments(root: Path = Path("/")) -> list[str]:
    """Return arguments for programs and libraries, read-only, and the parts of /etc that they need."""
    arguments = ["--ro-bind", str(root / "usr"), "/usr"]
    for name in SYSTEM:
        path = root / name
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), f"/{name}"]
        else:
            arguments += ["--ro-bind-try", str(path), f"/{name}"]
    found = (path.name for pattern in ETC_PATTERNS for path in sorted((root / "etc").glob(pattern)))
    for name in (*ETC, *found):
        arguments += ["--ro-bind-try", str(root / "etc" / name), f"/etc/{name}"]
    return arguments


def proc_arguments() -> list[str]:
    """Return arguments for a /proc with the sandbox's processes, and a /dev with harmless devices only."""
    arguments = ["--proc", "/proc", "--dev", "/dev"]
    for name in HIDDEN_FILES:
        if Path("/proc", name).exists():
            arguments += ["--ro-bind", os.devnull, f"/proc/{name}"]
    for name in HIDDEN_FOLDERS:
        if Path("/proc", name).is_dir():
            arguments += ["--tmpfs", f"/proc/{name}", "--remount-ro", f"/proc/{name}"]
    return arguments


def shown_arguments(paths: Iterable[Path]) -> list[str]:
    """Return arguments that show files and folders of the host, read-only, at their own paths and with their symbolic links."""
    shown: list[Path] = []
    links: dict[Path, str] = {}
    for path in paths:
        real, passed = _follow(path)
        shown.append(real)
        links.update(passed)
    outermost = [path for path in sorted(set(shown)) if not any(path.is_relative_to(p) for p in set(shown) - {path})]
    seen = [*outermost, Path("/usr"), *(Path("/", name) for name in SYSTEM)]
    missing = {link: target for link, target in links.items() if not any(link.is_relative_to(path) for path in seen)}
    binds = [path for path in outermost if not path.is_relative_to("/usr")]
    # In /tmp code could rename a folder that contains a mount, so the top folder of each is a read-only mount of its own.
    covers = sorted({Path(*path.parts[:3]) for path in (*binds, *missing) if path.is_relative_to("/tmp")})  # noqa: S108
    covers = [cover for cover in covers if cover not in binds and cover not in missing]
    arguments = [part for cover in covers for part in ("--tmpfs", str(cover))]
    arguments += [part for path in binds for part in ("--ro-bind", str(path), str(path))]
    arguments += [part for link, target in sorted(missing.items()) for part in ("--symlink", target, str(link))]
    return arguments + [part for cover in covers for part in ("--remount-ro", str(cover))]


def _follow(path: Path) -> tuple[Path, dict[Path, str]]:
    """Return the real path, and the symbolic links on the way with their targets."""
    links: dict[Path, str] = {}
    here, ahead, passed = Path("/"), list(path.absolute().parts[1:]), 0
    while ahead:
        name = ahead.pop(0)
        step = here.parent if name == ".." else here / name
        if not step.is_symlink():
            here = step
            continue
        target = links[step] = os.readlink(step)
        passed += 1
        if passed > MAX_LINKS:
            raise SandboxStartError(f"{path} can't be shown to the sandbox: too many symbolic links")
        ahead = [*Path(target).parts[1 if target.startswith("/") else 0 :], *ahead]
        here = Path("/") if target.startswith("/") else here
    if not here.exists():
        raise SandboxStartError(f"{path} can't be shown to the sandbox: there is no such file or folder")
    return here, links
