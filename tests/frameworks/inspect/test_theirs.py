"""Inspect's own checks of sandboxes."""

import pytest
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from codeact_sandbox.integrations.inspect_ai import CodeactConfig, CodeactSandboxEnvironment

USERS = "makes a user: a sandbox has no capabilities to be root or another user"


@pytest.fixture(scope="module")
async def environments(engine):
    config = CodeactConfig(backend=engine)
    environments = await CodeactSandboxEnvironment.sample_init("checks", config, {})
    yield environments
    await CodeactSandboxEnvironment.sample_cleanup("checks", config, environments, interrupted=False)


@pytest.fixture
def sandbox_env(environments, request):
    if request.node.originalname == "test_exec_as_user":
        request.applymarker(pytest.mark.xfail(reason=USERS, strict=True))
    return environments["default"]
