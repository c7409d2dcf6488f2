"""Limits of the calls that a block makes to host tools."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from codeact_sandbox.types.keyword_model import KeywordModel
from codeact_sandbox.types.limits import MAX_PAYLOAD, Size, parse_size

MOST_BYTES_OF_A_CALL = 4 * 1024 * 1024
MOST_BYTES_OF_AN_ANSWER = MAX_PAYLOAD - 64 * 1024


def _at_most(most: int) -> AfterValidator:
    def check(size: str | int) -> str | int:
        if parse_size(size) > most:
            raise ValueError(f"at most {most:,} bytes can be sent between the sandbox and the host")
        return size

    return AfterValidator(check)


class ToolLimits(KeywordModel):
    """How much of the host a block may use through its tools; a call beyond it raises an exception in the block.

    Args:
        calls: Calls of one block. Default 10,000.
        in_flight: Calls of one block that are worked on at the same time; the others wait. Default 16.
        call_bytes: Size of one call's name and arguments as JSON; at most 4m. Default 1m.
        answer_bytes: Size of one result as JSON; at most nearly 8m. Default 4m.
        bytes_in: Size of all calls of one block; the call log keeps them. Default 16m.
        bytes_out: Size of all results that one block gets; the call log keeps them, too. Default 64m.
        file_bytes: Size of the files, arrays, tables and images that the running calls of a block exchange. Default 256m.
        seconds: Seconds that one call may take, without the time for its approval. Default 60.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    calls: int = Field(default=10_000, ge=1)
    in_flight: int = Field(default=16, ge=1, le=256)
    call_bytes: Annotated[Size, _at_most(MOST_BYTES_OF_A_CALL)] = "1m"
    answer_bytes: Annotated[Size, _at_most(MOST_BYTES_OF_AN_ANSWER)] = "4m"
    bytes_in: Size = "16m"
    bytes_out: Size = "64m"
    file_bytes: Size = "256m"
    seconds: float = Field(default=60, gt=0)
