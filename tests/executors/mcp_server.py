"""A real MCP server over stdio, or HTTP if it gets a port, for tests and nothing else; run as a program."""

import sys
from typing import Literal

from mcp.server.fastmcp import Context, FastMCP, Image
from mcp.types import TextContent
from pydantic import BaseModel, Field

server = FastMCP("shop", log_level="ERROR")
stock = {"apple": 3}


class Line(BaseModel):
    """One line of an order."""

    sku: str = Field(description="What is bought")
    amount: int = 1


class Receipt(BaseModel):
    lines: list[Line]
    total: float
    paid_by: Literal["card", "cash"]


@server.tool()
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@server.tool(name="place-order")
def place(lines: list[Line], paid_by: Literal["card", "cash"] = "card", note: str | None = None) -> Receipt:
    """Place an order."""
    return Receipt(lines=lines, total=float(sum(line.amount for line in lines)), paid_by=paid_by)


@server.tool(name="shop.stock.take", structured_output=False)
def take(sku: str) -> str:
    """Take one out of stock."""
    stock[sku] -= 1
    return f"{stock[sku]} left"


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@server.tool(structured_output=False)
def image() -> list:
    """Show an image."""
    png = bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001"
        "a5f645400000000049454e44ae426082"
    )
    return ["see", Image(data=png, format="png")]


@server.tool(name="print", structured_output=False)
def show(text: str) -> list[TextContent]:
    """Show text."""
    return [TextContent(type="text", text=text), TextContent(type="text", text=text.upper())]


if __name__ == "__main__" and len(sys.argv) > 1:

    @server.tool()
    def token(ctx: Context) -> str:
        """Return what the client sent as its token."""
        return str(ctx.request_context.request.headers["authorization"])

    server.settings.port = int(sys.argv[1])
    server.run("streamable-http")
elif __name__ == "__main__":
    server.run()
