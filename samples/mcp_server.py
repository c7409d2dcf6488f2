"""The MCP server that mcp_tools.py starts."""

from mcp.server.fastmcp import FastMCP
from pydantic import BaseModel

TEMPERATURES = {"Oslo": -2.5, "Lisbon": 14.0, "Cairo": 21.6}

server = FastMCP("weather", log_level="ERROR")


class Temperature(BaseModel):
    """A temperature."""

    celsius: float


@server.tool()
def list_cities() -> list[str]:
    """List the known cities."""
    return list(TEMPERATURES)


@server.tool()
def temperature(city: str) -> Temperature:
    """Return the temperature in a city."""
    return Temperature(celsius=TEMPERATURES[city])


@server.tool()
def forget_city(city: str) -> None:
    """Forget a city."""
    del TEMPERATURES[city]


if __name__ == "__main__":
    server.run()
