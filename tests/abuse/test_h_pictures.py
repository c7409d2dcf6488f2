"""H11. Images that code made are shown to a model that sees: what they cost the host, and what is looked at in them."""

import gc

import pytest
from autogen_core import Image
from autogen_core.models import UserMessage

from autogen_codeact.agents.observation import as_message
from autogen_codeact.executors import ExecutionResult

from .lag import MOST_EXCESS_S, median_excess
from .oracles import MIB, forget_peak, peak_memory
from .subject import Kind, Subject

MOST_GROWTH = 64 * MIB

# Sandboxes of bubblewrap may have neither Pillow nor numpy.
MAKE = """
    import struct, zlib

    def chunk(kind, body):
        return struct.pack("!I", len(body)) + kind + body + struct.pack("!I", zlib.crc32(kind + body))

    def image(name, width, height, rows=None, depth=8, colour=6, before=b"", after=b""):
        packer, packed = zlib.compressobj(1), []
        row = bytes(1 + width * depth * {0: 1, 2: 3, 6: 4}[colour] // 8)
        for _ in range(height if rows is None else rows):
            packed.append(packer.compress(row))
        header = struct.pack("!IIBBBBB", width, height, depth, colour, 0, 0, 0)
        with open(name, "wb") as file:
            file.write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", header) + before)
            file.write(chunk(b"IDAT", b"".join(packed) + packer.flush()) + after + chunk(b"IEND", b""))

    def four(*arguments, count=4, **options):
        image("0.png", *arguments, **options)
        for number in range(1, count):
            open(f"{number}.png", "wb").write(open("0.png", "rb").read())
"""
LOADS = {
    "40 megapixels": "four(8000, 4960, colour=2)",
    "as large as is shown": "four(3600, 2400, depth=16)",
    "more than the header says": "four(100, 100, rows=250_000)",
    "two thousand million a side": "four(2**31 - 1, 2**31 - 1, rows=0)",
    "a bomb in a comment": """
bomb = zlib.compress(bytes(100_000_000), 9)
four(9, 9, before=chunk(b'zTXt', b'a\\0\\0' + bomb) + chunk(b'iCCP', b'a\\0\\0' + bomb))""",
    "many chunks": "four(9, 9, after=chunk(b'tEXt', b'') * 300_000)",
    "many markers": "for n in range(4): open(f'{n}.jpg', 'wb').write(b'\\xff\\xd8' + b'\\xff\\xe0\\0\\2' * 900_000)",
    "padded markers": "for n in range(4): open(f'{n}.jpg', 'wb').write(b'\\xff\\xd8' + b'\\xff' * 4_000_000)",
    "many blocks": "for n in range(4): open(f'{n}.gif', 'wb').write(b'GIF89a\\1\\0\\1\\0\\0\\0\\0' + b'!\\xf9\\0' * 1_300_000)",
    "five hundred files": "four(2000, 1000, count=500)",
}


async def shown(result: ExecutionResult) -> UserMessage:
    """Tell a model of the result, and send that as AutoGen's clients do."""
    message = await as_message(result, "coder", vision=True)
    for part in message.content:
        if isinstance(part, Image):
            assert part.image.size
            part.to_openai_format()
    return message


# What the host does with images is the same code with each engine, so one of them is enough for most loads.
# Case H11.
@pytest.mark.parametrize(
    ("kind", "load"),
    [(Kind("bubblewrap", "process"), load) for load in LOADS]
    + [(Kind("docker", "session"), load) for load in ("40 megapixels", "five hundred files")],
    indirect=["kind"],
    ids=str,
)
async def test_images_take_little_memory_and_do_not_stall_the_host(subject: Subject, load: str) -> None:
    await subject.start(memory="400m", workspace="64m")
    subject.kept = 64 * MIB
    result = await subject.run(MAKE + "\n".join(f"    {line}" for line in LOADS[load].splitlines()), timeout=60)
    assert result.outcome == "ok", result
    assert result.artifacts

    gc.collect()
    before = forget_peak()
    await shown(result)
    assert peak_memory() - before < MOST_GROWTH
    assert await median_excess(lambda: shown(result)) < MOST_EXCESS_S
