"""Fixtures for tests of run logs."""

from tests.agents.conftest import session

__all__ = ["session"]
