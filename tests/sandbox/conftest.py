"""What the tests of the sandbox library share."""

from ..executors.conftest import sandbox_image

__all__ = ["sandbox_image"]
