"""The environment of the tests and of the programs that they start: without what whoever runs them has set for himself."""

import os

PROXIES = {"all_proxy", "http_proxy", "https_proxy", "no_proxy"}
COLOR = {"FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "CLICOLOR", "CLICOLOR_FORCE"}
MODELS = ("ANTHROPIC_", "GEMINI_", "LLAMA_", "OLLAMA_", "OPENAI_")
PYTHON = {
    # Without bytecode files each child process compiles the whole package again, for half a second.
    "PYTHONDONTWRITEBYTECODE",
    *("PYTHONBREAKPOINT", "PYTHONDEVMODE", "PYTHONIOENCODING", "PYTHONUNBUFFERED", "PYTHONWARNINGS"),
}
REMOVED = {*COLOR, *PYTHON, *PROXIES, *map(str.upper, PROXIES), "COLUMNS", "LINES", "XDG_CONFIG_HOME"}


def is_removed(name: str) -> bool:
    """Return whether a variable changes what programs print, or which models and servers they reach."""
    return name in REMOVED or name.startswith((*MODELS, "OTEL_"))


def remove_settings() -> None:
    """Remove such variables from this process and from all that it will start."""
    for name in filter(is_removed, list(os.environ)):
        del os.environ[name]
