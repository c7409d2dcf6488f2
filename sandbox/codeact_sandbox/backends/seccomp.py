"""The system calls that a sandbox may make: one allow-list, as a profile for Docker and as a filter program for the kernel.

The list is `docker/seccomp.json`, in Docker's format. docs/security.md explains what it leaves out.
"""

from __future__ import annotations

import functools
import itertools
import json
import platform
import struct
from pathlib import Path
from typing import Any, NamedTuple

from codeact_sandbox.backends.syscalls import SYSCALLS
from codeact_sandbox.types.errors import SandboxStartError, SandboxUnavailable

PROFILE = Path(__file__).parents[1] / "docker" / "seccomp.json"

# linux/audit.h: what `arch` is in struct seccomp_data.
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000  # set in the number of every call of the x32 ABI, which shares x86_64's AUDIT_ARCH
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16  # struct seccomp_data
_ENOSYS = 38
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000  # linux/seccomp.h
_LOAD, _AND, _GO, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x54, 0x05, 0x15, 0x35, 0x06  # linux/bpf_common.h
_LOW_32_BITS = 0xFFFFFFFF


def profile_path(choice: str) -> Path:
    """Return the file of a profile that is not the engine's own."""
    return PROFILE if choice == "default" else Path(choice).resolve()


def docker_profile(choice: str = "default") -> str | None:
    """Return the seccomp profile for a container as JSON text, because the engine may be on another machine.

    `choice` is "default", "engine" for the engine's own (which gives None), or the path of a file in Docker's format.
    """
    if choice == "engine":
        return None
    path = profile_path(choice)
    try:
        text = path.read_text(encoding="utf-8")
        profile = json.loads(text)
    except (OSError, ValueError) as error:
        raise SandboxStartError(
            f'the seccomp profile {path} can\'t be used ({error}): pass seccomp="default", "engine" or the path of a JSON file'
        ) from error
    # The engine accepts other values here, such as `unconfined`, so only an object with a default passes.
    if not isinstance(profile, dict) or "defaultAction" not in profile:
        raise SandboxStartError(f'{path} is not a seccomp profile: it has no "defaultAction"')
    return text


@functools.cache
def bpf_program(arch: str | None = None) -> bytes:
    """Return the same allow-list as a filter program, for `bwrap --seccomp` or seccomp(2)."""
    arch = arch if arch is not None else platform.machine()
    if arch not in SYSCALLS:
        raise SandboxUnavailable(f"there is no system call filter for {arch}, only for {' and '.join(SYSCALLS)}")
    profile = json.loads(PROFILE.read_text(encoding="utf-8"))
    program = [
        _Instruction(_LOAD, k=_ARCH_AT),
        _Instruction(_IF_EQUAL, 1, 0, _AUDIT_ARCH[arch]),
        _Instruction(_RETURN, k=_KILL_PROCESS),
        _Instruction(_LOAD, k=_NUMBER_AT),
    ]
    if arch == "x86_64":
        program += [_Instruction(_IF_AT_LEAST, 0, 1, _X32), _Instruction(_RETURN, k=_KILL_PROCESS)]
    program += _search(_ranges(profile, SYSCALLS[arch]))
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)


class _Instruction(NamedTuple):
    code: int
    if_true: int = 0
    if_false: int = 0
    k: int = 0


_Block = list[_Instruction]


def _ranges(profile: dict[str, Any], numbers: dict[str, int]) -> list[tuple[int, _Block]]:
    """Return blocks of instructions, each with the first number of the system calls that it decides on."""
    default = _action(profile["defaultAction"], profile["defaultErrnoRet"])
    rules: dict[str, list[_Block]] = {}
    for entry in profile["syscalls"]:
        verdict = _action(entry["action"], entry.get("errnoRet", 1))
        for name in entry["names"]:
            rules.setdefault(name, []).append(_rule(entry.get("args", []), verdict))
    blocks = {number: _until_return([*rules.get(name, []), [default]]) for name, number in numbers.items()}
    end = max(blocks) + 1
    each = [(number, blocks.get(number, [default])) for number in range(end)]
    # Newer than this list: libc falls back to older calls on ENOSYS, and on nothing else.
    each.append((end, [_action("SCMP_ACT_ERRNO", _ENOSYS)]))
    return [next(group) for _, group in itertools.groupby(each, key=lambda item: item[1])]


def _action(name: str, errno: int) -> _Instruction:
    return _Instruction(_RETURN, k={"SCMP_ACT_ALLOW": _ALLOW, "SCMP_ACT_ERRNO": _ERRNO | errno}[name])


def _until_return(rules: list[_Block]) -> _Block:
    """Join rules, up to the first that always applies."""
    block: _Block = []
    for rule in rules:
        block += rule
        if len(rule) == 1:
            break
    return block


def _rule(conditions: list[dict[str, Any]], verdict: _Instruction) -> _Block:
    """Return instructions that return the verdict if all conditions hold, else continue after it."""
    block = [verdict]
    for condition in reversed(conditions):
        if condition["op"] != "SCMP_CMP_MASKED_EQ":
            raise ValueError(f"{PROFILE.name} has a comparison that is not supported: {condition['op']}")
        at = _ARGUMENTS_AT + 8 * condition["index"]
        mask, expected = condition["value"], condition["valueTwo"]
        # Little-endian: the low half of the argument comes first.
        for offset, shift in ((0, 0), (4, 32)):
            if mask >> shift & _LOW_32_BITS:
                block = (
                    _compare(at + offset, mask >> shift & _LOW_32_BITS, expected >> shift & _LOW_32_BITS, len(block))
                    + block
                )
    return block


def _compare(offset: int, mask: int, expected: int, rest: int) -> _Block:
    masking = [_Instruction(_AND, k=mask)] if mask != _LOW_32_BITS else []
    return [_Instruction(_LOAD, k=offset), *masking, _Instruction(_IF_EQUAL, 0, rest, expected)]


def _search(ranges: list[tuple[int, _Block]]) -> _Block:
    """Return instructions that find the block of a number by binary search."""
    if len(ranges) == 1:
        return ranges[0][1]
    half = len(ranges) // 2
    lower, upper = _search(ranges[:half]), _search(ranges[half:])
    # Conditional jumps reach 255 instructions, this one any distance.
    return [_Instruction(_IF_AT_LEAST, 0, 1, ranges[half][0]), _Instruction(_GO, k=len(lower)), *lower, *upper]
