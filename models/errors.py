"""Errors of local models."""


class LocalModelError(ConnectionError):
    """A local model can't be loaded, or its server has ended."""
