"""pydantic-ai's own suite for workspaces."""

import pytest
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from codeact_sandbox import AsyncSandbox
from codeact_sandbox.integrations.pydantic_ai import CodeactWorkspace


@pytest.fixture(scope="module")
async def box(engine):
    async with AsyncSandbox(engine) as box:
        yield box


class TestCodeactWorkspace(WorkspaceBackendSuite):
    @pytest.fixture
    def backend(self, box):
        return CodeactWorkspace(box)

    @pytest.fixture
    async def fresh_backend(self, engine):
        boxes = []

        def fresh():
            boxes.append(AsyncSandbox(engine))
            return CodeactWorkspace(boxes[-1])

        yield fresh
        for box in boxes:
            await box.stop()

    @pytest.fixture
    def attach_backend(self, box):
        made = {}

        def attach(ref):
            return CodeactWorkspace(made.get(ref.id, box), ref=ref)

        return attach

    @pytest.fixture
    def destroy_environment(self):
        async def destroy(backend):
            await backend.sandbox.stop()

        return destroy
