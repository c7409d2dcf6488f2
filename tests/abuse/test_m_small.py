"""M9, and what of M7 needs no sandbox: frames, heads with secrets, colours, addresses, and what syncs disks."""

import asyncio
import base64
import json
import struct
import time
import tracemalloc
from pathlib import Path

import pytest

from autogen_codeact.batch.ray import PART_BYTES, Folders
from codeact_sandbox.egress.secrets import MAX_HEAD, Secrets
from codeact_sandbox.host.protocol import unpack
from codeact_sandbox.integrations.notebook_magics import _safe
from codeact_sandbox.tools.payloads import describe_error
from codeact_sandbox.types.allowed_domains import Refused, parse_entry
from codeact_sandbox.types.errors import SandboxProtocolError
from codeact_sandbox.types.secrets import SecretValue

from .subject import Subject, each_engine

MIB = 2**20


def message(body: str) -> bytes:
    head = f'{{"files":[{body}]}}'.encode()
    return struct.pack("!I", len(head)) + head


# Case M9.
@pytest.mark.parametrize("part", ["[]", "{}", "0", '""', "1.5", '{"a":0}', '"[[["'])
def test_a_message_of_very_many_parts_is_refused_before_it_is_parsed(part: str) -> None:
    forged = message(",".join([part] * (2 * MIB // (len(part) + 1) - 10)))
    began = time.thread_time()
    with pytest.raises(SandboxProtocolError):
        unpack(forged)
    assert time.thread_time() - began < 2


# Case M9.
def test_names_full_of_brackets_and_commas_are_no_parts() -> None:
    files = [{"name": f"{'[,{' * 20}{number}", "size": 1, "mode": 0o644} for number in range(8_000)]
    body = json.dumps(files)[1:-1]
    assert unpack(message(body))[0]["files"] == files


ENTRY = parse_entry("api.example:443")
VALUE = b"v" * 8000


def head_with(count: int, *, basic: bool = False) -> list[tuple[bytes, bytes]]:
    """Put a secret into a header some times, and return the headers."""
    made = Secrets([SecretValue("KEY", VALUE, [ENTRY])])
    text = b" ".join([made.placeholders["KEY"].encode()] * count)
    value = b"Basic " + base64.b64encode(b"user:" + text) if basic else text
    return made.put_in([(b"Authorization", value)], "api.example", 443)


# Case M7.
@pytest.mark.parametrize("basic", [False, True])
def test_a_head_that_secrets_make_too_long_is_refused(basic: bool) -> None:
    assert len(head_with(1, basic=basic)[0][1]) >= len(VALUE)
    with pytest.raises(Refused, match="longer than"):
        head_with(MAX_HEAD // len(VALUE) + 1, basic=basic)


# Case M7.
def test_many_headers_are_counted_together() -> None:
    made = Secrets([SecretValue("KEY", VALUE, [ENTRY])])
    headers = [(b"X", made.placeholders["KEY"].encode())] * 100
    with pytest.raises(Refused, match="longer than"):
        made.put_in(headers, "api.example", 443)


# Case M9.
@pytest.mark.parametrize("sequence", ["8", "08", "1;8", "8;1", "38;5;5;8", "0;;8", "58;5;8"])
def test_a_cell_can_not_conceal_text(sequence: str) -> None:
    assert _safe(f"\x1b[{sequence}mhidden") == f"\\x1b[{sequence}mhidden"


# Case M9.
@pytest.mark.parametrize("sequence", ["", "0", "1;31", "38;5;8", "48;2;8;8;8", "97", "38;5;208;1"])
def test_a_cell_can_use_colours(sequence: str) -> None:
    assert _safe(f"\x1b[{sequence}mtext") == f"\x1b[{sequence}mtext"


class Odd(Exception):
    """An error with an object in it."""


# Case M9.
@pytest.mark.parametrize("thing", [object(), test_a_cell_can_use_colours, Secrets.put_in.__get__(1), asyncio.Lock()])
def test_an_error_of_a_tool_has_no_address_of_the_host(thing: object) -> None:
    message = describe_error(Odd(f"{thing!r} failed at 0xdead"))[1]
    assert "failed" in message
    assert f"{id(thing):x}" not in message
    assert "0x7" not in message


SYNC = """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    for path in ("/", "/tmp", "/workspace"):
        print(libc.syncfs(os.open(path, os.O_RDONLY)), os.strerror(ctypes.get_errno()))
"""


# Case M9.
@each_engine
async def test_code_can_not_make_the_host_write_its_disks(subject: Subject) -> None:
    assert await subject.out(SYNC) == "-1 Operation not permitted\n" * 3


# Case M7.
def test_the_driver_of_a_ray_batch_holds_a_part_of_a_workspace_only(tmp_path: Path) -> None:
    """400 MB of workspace were 1.6 GiB in the driver."""
    for name in ("a/log", "a/work", "b/log", "b/work"):
        (tmp_path / name).mkdir(parents=True)
    with open(tmp_path / "a/work/large", "wb") as file:
        file.truncate(400 * MIB)
    for number in range(3_000):
        (tmp_path / f"a/work/{number}").touch()
    here, there = (Folders(tmp_path / side / "log", tmp_path / side / "work") for side in "ab")
    tracemalloc.start()
    for part in here.changes():
        there.write(part)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 5 * PART_BYTES
    assert (tmp_path / "b/work/large").stat().st_size == 400 * MIB
