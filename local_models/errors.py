"""Errors of local models."""


class LocalModelError(Exception):
    """A local model can't be fetched or loaded."""
