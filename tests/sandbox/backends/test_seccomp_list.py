"""The allow-list itself: what it says, the program made from it, the numbers of the calls, and what an executor does with it."""

import functools
import json
import re
import struct

import pytest

from autogen_codeact.executors import DockerCommandLineCodeExecutor, SandboxStartError, SandboxUnavailable
from codeact_sandbox import AsyncSandbox
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.seccomp import PROFILE, SYSCALLS, bpf_program, docker_profile

TEXT = PROFILE.read_text(encoding="utf-8")
LIST = json.loads(TEXT)
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x50001, 0x50026, 0x80000000
WORDS = {ALLOW: "allow", EPERM: "EPERM", ENOSYS: "ENOSYS", KILL: "kill"}
GARBAGE = 0xDEAD << 32


@functools.cache
def unpacked(program: bytes) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack("<HBBI", program))


def decide(program: bytes, arch: int, number: int, *arguments: int) -> str:
    """What the kernel would do with a call: the few instructions of classic BPF that seccomp programs are made of."""
    given = [*arguments, *[0] * 6][:6]
    data = struct.pack("<IIQ6Q", number, arch, 0, *given)
    instructions = unpacked(program)
    at = accumulator = 0
    while True:
        code, if_true, if_false, k = instructions[at]
        at += 1
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, k)[0]
        elif code == 0x54:
            accumulator &= k
        elif code == 0x05:
            at += k
        elif code == 0x15:
            at += if_true if accumulator == k else if_false
        elif code == 0x35:
            at += if_true if accumulator >= k else if_false
        else:
            assert code == 0x06, f"no instruction for seccomp: {code:#x}"
            return WORDS[k]


@pytest.fixture(params=ARCHITECTURES)
def arch(request):
    return request.param


@pytest.fixture
def decided(arch):
    """What becomes of a call, by its name."""
    program = bpf_program(arch)
    return lambda name, *arguments: decide(program, ARCHITECTURES[arch], SYSCALLS[arch][name], *arguments)


def holds(condition, arguments):
    assert condition["op"] == "SCMP_CMP_MASKED_EQ"
    return arguments[condition["index"]] & condition["value"] == condition["valueTwo"]


def listed(name, arguments):
    """What the list says of a call, read as Docker reads it: any entry whose conditions all hold, else the default."""
    for entry in LIST["syscalls"]:
        if name in entry["names"] and all(holds(condition, arguments) for condition in entry.get("args", [])):
            return {"SCMP_ACT_ALLOW": "allow", "SCMP_ACT_ERRNO": {38: "ENOSYS", 1: "EPERM"}[entry.get("errnoRet", 1)]}[
                entry["action"]
            ]
    return "EPERM"


def test_program_decides_each_number_as_the_list_does(arch):
    program, names = bpf_program(arch), {number: name for name, number in SYSCALLS[arch].items()}
    samples = [
        (0, 0o4755),
        (0, 0o20000102, 0o2755),
        (0, 0, 0o100, 0o6000),
        (0, 0o10644, 0o10644),
        (0,) * 6,
        (1, 2, 3, 4, 5, 6),
        (2, 1, 6),
        (16, 3, 0),
        (0, 0x1180, 0x1180),
        ((1 << 64) - 1,) * 6,
    ]
    for number in range(max(names) + 1):
        for sample in samples:
            arguments = [*sample, *[0] * 6][:6]
            expected = listed(names[number], arguments) if number in names else "EPERM"
            assert decide(program, ARCHITECTURES[arch], number, *arguments) == expected, (names.get(number), arguments)


def test_foreign_architectures_and_x32_are_killed(arch):
    program = bpf_program(arch)
    for foreign in {0x40000003, 0x40000028, 0, *ARCHITECTURES.values()} - {ARCHITECTURES[arch]}:  # i386, arm, none
        assert decide(program, foreign, SYSCALLS[arch]["getpid"]) == "kill"
    x32 = 0x40000000 | SYSCALLS[arch]["getpid"]
    assert decide(program, ARCHITECTURES[arch], x32) == ("kill" if arch == "x86_64" else "ENOSYS")


def test_sockets_are_compared_by_family_type_and_protocol(decided):
    flags = 0x80800
    allowed = {
        (family, kind, protocol)
        for family in range(50)
        for kind in range(16)
        for protocol in (0, 1, 6, 17, 58, 132, 136, 255, 256, 262)
        if decided("socket", family, kind | flags, protocol | GARBAGE) == "allow"
    }
    unix = {(1, kind, protocol) for kind in (1, 2, 5) for protocol in (0, 1, 6, 17, 58, 132, 136, 255, 256, 262)}
    internet = {(family, *rest) for family in (2, 10) for rest in ((1, 0), (1, 6), (2, 0), (2, 17))}
    assert allowed == unix | internet | {(16, 2, 0), (16, 3, 0)}


def test_unknown_architecture_is_refused():
    with pytest.raises(SandboxUnavailable, match="no system call filter for riscv64, only for x86_64 and aarch64"):
        bpf_program("riscv64")


@pytest.mark.parametrize("content", [None, "", "unconfined", '"unconfined"', "[]", "{}"])
def test_file_that_is_not_a_profile_is_refused(content, tmp_path):
    path = tmp_path / "profile.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SandboxStartError, match=re.escape(str(path))):
        docker_profile(str(path))


@pytest.mark.usefixtures("docker_engine")
async def test_own_profile_replaces_the_default_list(tmp_path):
    profile = {**LIST, "syscalls": [*LIST["syscalls"], {"names": ["ptrace"], "action": "SCMP_ACT_ALLOW"}]}
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(profile))
    traced = "import ctypes\nprint(ctypes.CDLL(None).ptrace(0, 0, 0, 0))"
    async with AsyncSandbox("docker", mode="process", seccomp=str(path)) as box:
        assert (await box.run(traced)).output == "0\n"


@pytest.mark.usefixtures("docker_engine")
async def test_profile_that_the_engine_refuses_leaves_no_sandbox(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text('{"defaultAction": "SCMP_ACT_NONSENSE"}')
    executor = DockerCommandLineCodeExecutor(container_name="codeact-test-no-profile", seccomp=str(path))
    with pytest.raises(SandboxStartError, match=r'can\'t apply the sandbox\'s seccomp profile.*seccomp="engine"'):
        await executor.start()
    await executor.stop()
    client = connect()
    try:
        assert client.containers(all=True, filters={"name": "codeact-test-no-profile"}) == []
    finally:
        client.close()
