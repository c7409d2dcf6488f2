"""The version of the distribution, and of the image that it builds."""

__version__ = "0.2.0"
DEFAULT_IMAGE = "autogen-codeact/sandbox:0.2"
