"""Messages nested deep: refused before they are parsed, whatever lies in their texts."""

import gc
import json
import struct
import sys
from typing import Any

import pytest

from autogen_codeact.executors import SandboxProtocolError
from codeact_sandbox.host import protocol


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":[' * 40 + b"1" + b"]}" * 40, b"[[]," * 20 + b"{" * 14])
def test_messages_that_are_nested_deep_are_refused_before_anything_runs_out_of_stack(data: bytes) -> None:
    """The garbage collector may run while JSON is parsed, and with it finalizers of the host's program, which need room."""
    failed: list[object] = []

    def finalizer(_phase: str, _info: object, depth: int = 20) -> None:
        if depth:
            finalizer(_phase, _info, depth - 1)

    thresholds = gc.get_threshold()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", failed.append)
        gc.callbacks.append(finalizer)
        gc.set_threshold(1)
        try:
            with pytest.raises(SandboxProtocolError, match="nested deeper than 32, or not closed"):
                protocol.unpack(struct.pack("!I", len(data)) + data)
        finally:
            gc.callbacks.remove(finalizer)
            gc.set_threshold(*thresholds)
    assert failed == []


@pytest.mark.parametrize("text", ["[" * 200, '\\"{[' * 50, "[]{}" * 50, "\ud800["])
def test_messages_may_hold_brackets_in_their_texts(text: Any) -> None:
    message = {"files": [{"name": text, "more": [[]]}] * 100}
    data = json.dumps(message).encode()
    assert protocol.unpack(struct.pack("!I", len(data)) + data) == (message, b"")
