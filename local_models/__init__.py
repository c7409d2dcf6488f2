"""Models that run on this machine, without a key: llama.cpp in a child process."""

from typing import TYPE_CHECKING

from codeact_sandbox.lazy import lazy_names

if TYPE_CHECKING:
    from autogen_codeact.local_models.client import gguf_model as gguf_model
    from autogen_codeact.local_models.client import local_model as local_model

_NAMES = {"autogen_codeact.local_models.client": "gguf_model local_model"}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
