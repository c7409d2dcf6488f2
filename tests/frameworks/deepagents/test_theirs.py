"""The standard tests for backends of deepagents, of langchain-tests."""

import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests

from codeact_sandbox import Sandbox
from codeact_sandbox.integrations.deepagents import CodeactBackend


class TestCodeactBackend(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, engine):
        with Sandbox(engine) as box:
            yield CodeactBackend(box)
