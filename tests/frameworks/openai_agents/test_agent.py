"""Agents of the OpenAI Agents SDK in sandboxes."""

import asyncio
import io
import itertools
import json
import tarfile
from pathlib import Path

import pytest
from agents import ModelSettings, OpenAIChatCompletionsModel, RunConfig, Runner, RunState, function_tool
from agents.items import ToolCallOutputItem
from agents.sandbox import LocalSnapshotSpec, Manifest, SandboxAgent, SandboxRunConfig, errors
from agents.sandbox.capabilities import Filesystem, Shell
from agents.sandbox.entries import Dir, File, GitRepo, LocalDir
from agents.testing import ScriptedModel, assistant_message
from httpx import AsyncClient
from openai import AsyncOpenAI
from openai.types.responses import ResponseCustomToolCall, ResponseFunctionToolCall
from scripted import FIGURE, call, price, run_program, sandboxes, tool_results, wait_until

from codeact_sandbox import Unsupported
from codeact_sandbox.integrations.openai_agents import CodeactClient, RunCode

numbers = itertools.count()
PATCH = """*** Begin Patch
*** Update File: notes.txt
@@
-old
+new
*** Add File: added/more.txt
+more
*** End Patch
"""


def tool(name, **arguments):
    given, ident = json.dumps(arguments), f"call-{next(numbers)}"
    return [ResponseFunctionToolCall(type="function_call", name=name, arguments=given, call_id=ident)]


def outputs(result):
    return [item.output for item in result.new_items if isinstance(item, ToolCallOutputItem)]


def config_of(client, **more):
    return RunConfig(sandbox=SandboxRunConfig(client=client, **more), tracing_disabled=True)


async def text_of(session, path):
    return (await session.read(Path(path))).read().decode()


async def test_an_agent_has_files_commands_and_code_in_its_sandbox(engine, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "costs.csv").write_text("tea,4.5\n")
    patch = ResponseCustomToolCall(type="custom_tool_call", name="apply_patch", input=PATCH, call_id="patch")
    model = ScriptedModel(
        [
            tool("exec_command", cmd="cat notes.txt data/costs.csv; echo $GIVEN; id -u nobody; nothing-here"),
            [patch],
            tool("exec_command", cmd="echo before; sleep 60", yield_time_ms=1000),
            tool("run_code", code="cost = 2 * price('tea')"),
            tool("run_code", code="while True: pass"),
            tool("run_code", code="open('cost.txt', 'w').write(str(cost)); print(cost, open('notes.txt').read())"),
            tool("run_code", code=FIGURE),
            tool("view_image", path="figure-1.png"),
            tool("exec_command", cmd="cat added/more.txt cost.txt", workdir="/workspace"),
            [assistant_message("It costs 9.0.")],
        ]
    )
    manifest = Manifest(
        entries={"notes.txt": File(content=b"old\n"), "data": LocalDir(src=tmp_path / "data")},
        environment={"value": {"GIVEN": "set"}},
        extra_path_grants=({"path": str(tmp_path)},),
    )
    agent = SandboxAgent("coder", model=model, capabilities=[Filesystem(), Shell(), RunCode()])
    client = CodeactClient(engine, tools=[price], timeout=3)
    session = await client.create(manifest=manifest)
    async with session:
        done = await Runner.run(agent, "What do two teas cost?", run_config=config_of(client, session=session))
        out = await text_of(session, "cost.txt")
    assert (done.final_output, out) == ("It costs 9.0.", "9.0")
    shown, patched, late, first, endless, printed, figure, image, again = outputs(done)
    assert "old\ntea,4.5\nset\n65534\nsh: 1: nothing-here: not found" in shown.replace("\n\n", "\n")
    assert patched.splitlines() == ["Updated notes.txt", "Created added/more.txt"]
    assert "Command timed out after 1.000 seconds." in late
    assert first == "The code printed nothing."
    assert "exit code 124" in endless
    assert printed == "9.0 new\nChanged files:\ncost.txt"
    assert [part.type for part in figure] == ["text", "image"]
    assert figure[1].image_url.startswith("data:image/png;base64,")
    assert image.image_url.startswith("data:image/png;base64,")
    assert again.endswith("more9.0")
    assert wait_until(lambda: not sandboxes())


async def test_a_run_goes_on_in_another_sandbox_with_the_snapshot(engine, tmp_path):
    @function_tool(needs_approval=True)
    def send() -> str:
        return "sent"

    def agent_of(*steps):
        return SandboxAgent("coder", model=ScriptedModel(steps), tools=[send], capabilities=[Shell()])

    manifest = Manifest(
        entries={"keys": Dir(children={"key": File(content=b"1", ephemeral=True)}), "a": File(content=b"a")}
    )
    config = config_of(CodeactClient(engine), snapshot=LocalSnapshotSpec(base_path=tmp_path), manifest=manifest)
    agent = agent_of(tool("exec_command", cmd="cat keys/key >> a; ln -s a b; chmod 700 a; mkdir empty"), tool("send"))
    first = await Runner.run(agent, "Send it.", run_config=config)
    assert len(first.interruptions) == 1
    assert wait_until(lambda: not sandboxes())
    (snapshot,) = tmp_path.iterdir()
    with tarfile.open(snapshot) as archive:
        assert archive.getnames() == ["a", "b", "empty", "keys"]
    agent = agent_of(tool("exec_command", cmd="ls; cat b keys/key; stat -c %a a"), [assistant_message("Sent.")])
    state = await RunState.from_json(agent, first.to_state().to_json())
    state.approve(state.get_interruptions()[0])
    last = await Runner.run(agent, state, run_config=config)
    assert (last.final_output, outputs(last)[-2]) == ("Sent.", "sent")
    assert outputs(last)[-1].endswith("Output:\na\nb\nempty\nkeys\na11700\n")
    assert wait_until(lambda: not sandboxes())


async def test_errors_are_those_of_the_sdk(engine):
    client = CodeactClient(engine)
    session = await client.create()
    async with session:
        await session.exec("ln -s /etc/passwd link; touch file")
        for path, kind in (
            ("missing", errors.WorkspaceReadNotFoundError),
            (".", errors.WorkspaceArchiveReadError),
            ("../etc/passwd", errors.InvalidManifestPathError),
            ("link", errors.InvalidManifestPathError),
        ):
            with pytest.raises(kind):
                await session.read(Path(path))
        with pytest.raises(errors.WorkspaceArchiveWriteError):
            await session.write(Path("file/below"), io.BytesIO(b""))
        with pytest.raises(errors.ExecTimeoutError):
            await session.exec("sleep 60", timeout=1)
        with pytest.raises(Unsupported, match="no capabilities to change the user"):
            await session.exec("true", user="root")
        flood = await session.exec("yes | head -c 20000000")
        assert len(flood.stdout) < 2_000_000
        assert b"bytes dropped" in flood.stdout
        other = await client.resume(session.state)  # the same sandbox, as it is running
        await session.write(Path("a.txt"), io.BytesIO(b"a"))
        assert await text_of(other, "a.txt") == "a"
        assert len(sandboxes()) == 1
    with pytest.raises(errors.ExecTransportError) as caught:
        await session.exec("true")
    assert "resume it from its snapshot" in str(caught.value.cause)
    with pytest.raises(ValueError, match="the root of a manifest is /workspace"):
        await client.create(manifest=Manifest(root="/somewhere"))
    with pytest.raises(ValueError, match="a sandbox needs 20m to start"):
        await CodeactClient(engine, memory="1m").create()


async def test_exposed_ports_have_an_address_on_this_machine(engine):
    session = await CodeactClient(engine, exposed_ports=(8000,)).create()
    async with session:
        await session.write(Path("a.txt"), io.BytesIO(b"served"))
        await session.exec("python3 -m http.server > /dev/null 2>&1 &")
        ready = "import socket,time\nwhile socket.socket().connect_ex(('127.0.0.1', 8000)): time.sleep(0.1)"
        await session.exec("python3", "-c", ready, shell=False)
        place = await session.resolve_exposed_port(8000)
        assert place.url_for("http") == f"http://{place.host}:{place.port}/"
        asked = AsyncClient(base_url=f"http://127.0.0.1:{place.port}", headers={"Host": f"{place.host}:{place.port}"})
        async with asked as client:
            assert (await client.get("/a.txt")).text == "served"
        with pytest.raises(errors.ExposedPortUnavailableError, match="8001 is not configured"):
            await session.resolve_exposed_port(8001)
    with pytest.raises(errors.ExposedPortUnavailableError, match="8000 could not be resolved"):
        await session.resolve_exposed_port(8000)


async def test_no_sandbox_is_left_after_a_cancelled_run_or_start(engine):
    model = ScriptedModel([tool("exec_command", cmd="sleep 100", yield_time_ms=100_000)])
    agent = SandboxAgent("coder", model=model, capabilities=[Shell()])
    client = CodeactClient(engine)
    run = asyncio.ensure_future(Runner.run(agent, "Go.", run_config=config_of(client)))
    assert await asyncio.to_thread(wait_until, lambda: model.calls)
    assert len(sandboxes()) == 1
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await asyncio.to_thread(wait_until, lambda: not sandboxes())
    manifest = Manifest(entries={"repository": GitRepo(repo="none/none", ref="main")})
    with pytest.raises(errors.SandboxError):
        await Runner.run(agent, "Go.", run_config=config_of(client, manifest=manifest))
    assert await asyncio.to_thread(wait_until, lambda: not sandboxes())


async def test_an_agent_runs_with_the_client_of_openai(engine, serve):
    server = serve(
        [
            call("exec_command", cmd="echo 41 > n"),
            call("run_code", code="n = int(open('n').read())"),
            call("run_code", code="print(n + 1)"),
            call("run_code", code=FIGURE),
            "It is 42.",
        ]
    )
    async with AsyncOpenAI(base_url=server.base_url, api_key="none") as client:
        model = OpenAIChatCompletionsModel("scripted", openai_client=client)
        agent = SandboxAgent("coder", model=model, model_settings=ModelSettings(), capabilities=[Shell(), RunCode()])
        done = await Runner.run(agent, "What is n + 1?", run_config=config_of(CodeactClient(engine)))
        assert done.final_output == "It is 42."
        assert tool_results(server)[1:3] == ["The code printed nothing.", "42"]
        assert "figure-1.png" in str(tool_results(server)[3])
        assert wait_until(lambda: not sandboxes())


@pytest.mark.usefixtures("engine")
def test_the_program_of_the_page_runs(serve, tmp_path):
    server = serve([call("run_code", code="print(2**100)"), "It is 1267650600228229401496703205376."])
    assert run_program("OpenAI Agents", server, tmp_path) == "It is 1267650600228229401496703205376.\n"
    assert tool_results(server) == ["1267650600228229401496703205376"]
