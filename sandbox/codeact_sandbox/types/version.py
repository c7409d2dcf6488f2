"""The version of both distributions, and of the image they build. `autogen_codeact/version.py` is a link to this file."""

__version__ = "0.2.0"
DEFAULT_IMAGE = "autogen-codeact/sandbox:0.2"
