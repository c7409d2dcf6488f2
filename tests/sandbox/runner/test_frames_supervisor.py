"""Frames that no host sends: the true supervisor says what was wrong with them, ends, or goes on; and it ends with its host."""

import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from codeact_sandbox.host import protocol
from tests.sandbox.host.test_frames import message, raw
from tests.sandbox.runner.local_runner import LocalRunner
from tests.sandbox.runner.test_runner_old_python import needs_namespaces


@needs_namespaces
class TestSupervisor:
    """The true one, of which the host would never ask such things."""

    @pytest.mark.parametrize(
        "sent",
        [
            struct.pack("!cII", b"X", 1, 2**32 - 1),
            raw(b"X", 1, b"not a message"),
            raw(b"X", 1, message([])),
            raw(b"?", 1, message({})),
            raw(b"P", 1, message({})),
        ],
    )
    def test_supervisor_reports_an_invalid_frame_and_ends(self, tmp_path: Path, sent: bytes) -> None:
        with LocalRunner(sys.executable, tmp_path) as runner:
            runner.greet()
            runner.send(sent)
            kind, _, payload = runner.receive()
            assert kind == b"!"
            assert protocol.unpack(payload)[0]["error"]
            with pytest.raises(EOFError):
                runner.receive()

    def test_supervisor_refuses_wrong_file_requests_and_goes_on(self, tmp_path: Path) -> None:
        with LocalRunner(sys.executable, tmp_path) as runner:
            runner.greet()
            wrong: list[dict[str, Any]] = [
                {},
                {"op": "x"},
                {"op": "read"},
                {"op": "read", "name": 3},
                {"op": "read", "name": "a\0b"},
                {"op": "read", "name": "x", "offset": "y"},
                {"op": "write", "name": "", "mode": 0o644},
                {"op": "write", "name": "x/", "mode": 0o644},
                {"op": "write", "name": "x" * 5000, "mode": 0o644},
            ]
            for request in wrong:
                answer, _, _ = runner.request(b"F", request, b"data")
                assert answer["error"], request
                assert answer["errno"] > 0
            assert runner.run("print('next')")[1] == "next\n"
