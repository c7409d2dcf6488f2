"""What the tests of executors share with those of the sandbox; and after each of them a look at what it left behind."""

from tests.sandbox.conftest import leaves_nothing, make_executor, module_loop, pytest_itemcollected, sandbox_image

__all__ = ["leaves_nothing", "make_executor", "module_loop", "pytest_itemcollected", "sandbox_image"]
