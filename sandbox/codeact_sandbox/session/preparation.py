"""What a started sandbox gets before its first block: files, functions and `init_command`."""

from __future__ import annotations

from codeact_sandbox.files import sync
from codeact_sandbox.files.data import check_data
from codeact_sandbox.files.service import FileService
from codeact_sandbox.files.workspace import Workspace
from codeact_sandbox.host.blocks import make_request, to_result
from codeact_sandbox.host.client import RunnerClient
from codeact_sandbox.host.connection import Reply
from codeact_sandbox.tools.toolset import Toolset
from codeact_sandbox.types.errors import SandboxStartError
from codeact_sandbox.types.options import DockerOptions, SandboxOptions
from codeact_sandbox.types.result import Result
from codeact_sandbox.types.run_context import Block

PREPARE_TIMEOUT_S = 60.0


async def prepare(
    client: RunnerClient,
    options: SandboxOptions,
    tools: Toolset,
    workspace: Workspace | None,
    *,
    all_files: bool,
) -> int:
    """Start a sandbox, unless it is one of a pool, and prepare it for its first block; it is stopped if that fails.

    Returns the number of blocks that were run for it.
    """
    if client.hello is None:
        await client.start()
    tools.broker.started(client.settings.tools)
    try:
        await check_data(FileService(client), options)
        if workspace is not None:
            workspace.note(*await sync.push(workspace, client, options.limits, all_of_them=all_files))
        return await _run_first_blocks(client, options, workspace)
    except BaseException:
        await client.stop()
        raise


async def _run_first_blocks(client: RunnerClient, options: SandboxOptions, workspace: Workspace | None) -> int:
    blocks, extra = 0, options.autogen
    if extra.functions_source is not None:
        module = extra.functions_module
        await client.requests.write_file(f"{module}.py", 0o644, [extra.functions_source.encode()])
        failed = "the functions failed to load"
        if extra.functions_packages and not isinstance(options, DockerOptions):
            needed = ", ".join(extra.functions_packages)
            failed += f"; they need {needed}: install that for the Python that the sandbox runs, or use Docker"
        # Without a list of changed files: an import writes __pycache__.
        await _run(client, options, Block(f"import {module}"), failed=failed, scan=False)
        blocks += 1
    if extra.init_command is not None:
        scan = workspace is not None
        block = Block(extra.init_command, "sh")
        reply = await _run(client, options, block, failed="init_command failed", scan=scan)
        blocks += 1
        if workspace is not None:
            await sync.pull(workspace, client, reply)
    return blocks


async def _run(
    client: RunnerClient,
    options: SandboxOptions,
    block: Block,
    *,
    failed: str,
    scan: bool,
) -> Reply:
    request = make_request(block, options, scan=scan, of_caller=False)
    assert not isinstance(request, Result)
    reply = await client.blocks.run(request.message, request.code, PREPARE_TIMEOUT_S)
    result = to_result(reply)
    if result.exit_code != 0:
        raise SandboxStartError(f"{failed} (exit code {result.exit_code}): {result.output.strip()}")
    return reply
