"""Part H, case 20: several engines. Each is real, reached over TCP with TLS, and may be killed or paused."""

import asyncio
import gc
import json
import logging
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from autogen_core.code_executor import CodeExecutor

from autogen_codeact.agents import CodeActAgent
from autogen_codeact.batch import Task
from autogen_codeact.batch.progress import AttemptFailed, BatchEvent
from codeact_sandbox import AsyncSandbox, DockerHost, DockerTLS, SandboxDied, SandboxError, SandboxPool
from codeact_sandbox.backends.docker import placement as placing
from codeact_sandbox.backends.docker.engine import connect
from codeact_sandbox.backends.docker.leftovers import KIND, LIFE, OWNER, SANDBOX, owner_labels
from codeact_sandbox.backends.docker.placement import placement
from tests.agents.support import scripted
from tests.batch.support import ANSWER, CODE, double, lines, rows_of
from tests.sandbox.egress.servers import hosts_in, read_request

from .engine_proxy import ENGINE
from .engines import IMAGE, NAMES, Doubles, Engines, box_on, engines_in, start_all, stopping, unusable, waits_out
from .faults import eventually
from .oracles import descriptors, eventually_empty, threads, with_details

TASKS = 80
"""How many tasks of the batch use a sandbox: with a container for each, they would take minutes on a small machine."""
pytestmark = [pytest.mark.usefixtures("docker_engine"), pytest.mark.timeout(300)]
NO_SUCH_PID = 2**22 + 1
WITHIN_S = 120
"""How long a machine under load may take for what takes 20 s otherwise."""


@pytest.fixture(scope="module")
def started_engines(docker_engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Three engines, of which the first one has the image."""
    with engines_in(tmp_path_factory.mktemp("engines")) as made:
        yield made


@pytest.fixture
def engines(started_engines: Engines, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engines]:
    """The three engines; all of them run, and nothing of a test is left there."""
    # One that went out in the test before would be given sandboxes a little later if it goes out again.
    monkeypatch.setattr(placing, "_placements", {})
    started_engines.begin()
    yield started_engines
    started_engines.begin()


@pytest.fixture
def all_have_it(engines: Engines) -> Engines:
    """Engines that all have the image."""
    with closing(connect(engines["a"].address)) as client:
        files = b""
        for engine in engines.all[1:]:
            with closing(connect(engine.address)) as other:
                if not other.images(IMAGE):
                    files = files or b"".join(client.get_image(IMAGE))
                    list(other.load_image(files))
    return engines


@pytest.fixture
async def nothing_left(all_have_it: Engines) -> AsyncIterator[None]:
    """No thread or connection is left, also where an engine has been killed and started again: it is another process then."""
    gc.collect()
    before = threads() | descriptors()
    yield
    left = await eventually_empty(
        lambda: {"left": found} if gc.collect() >= 0 and (found := (threads() | descriptors()) - before) else {},
        WITHIN_S,
    )
    assert not left, with_details({"descriptors": left["left"]})


async def test_h20_engines_without_the_image_are_left_out_and_say_what_to_do(engines: Engines, untouched: None) -> None:
    """Sandboxes start where the image is; if it is nowhere, the error says for each engine how to bring it."""
    for engine in engines.all[1:]:
        engine.remove_image()
    async with stopping([box_on(engines) for _ in range(3)]) as boxes:
        await asyncio.gather(*(box.start() for box in boxes))
        assert Counter(box.engine for box in boxes) == {"a": 3}
    with pytest.raises(SandboxError, match=r"^No Docker engine could start the sandbox\. The engines: b: ") as caught:
        await box_on(engines.hosts[1:]).start()
    assert str(caught.value).count(f"image {IMAGE}") == 2  # the rest depends on whether a registry answers
    assert engines.containers() == {"a": set(), "b": set(), "c": set()}


async def test_h20_sandboxes_are_placed_by_load_and_capacity(all_have_it: Engines, untouched: None) -> None:
    """The one with the fewest gets the next; one that is full gets none until one of its sandboxes has stopped."""
    a, b, c = all_have_it.hosts
    async with stopping([box_on([a, b]) for _ in range(4)]) as boxes:
        assert await start_all(boxes) == {"a": 2, "b": 2}
    limited = [a.model_copy(update={"capacity": 1}), c.model_copy(update={"capacity": 2})]
    async with stopping([box_on(limited) for _ in range(4)]) as [*boxes, last]:
        assert await start_all(boxes) == {"a": 1, "c": 2}
        waiting = asyncio.ensure_future(last.start())
        done, _ = await asyncio.wait({waiting}, timeout=0.5)
        assert not done
        on_a = next(box for box in boxes if box.engine == "a")
        await on_a.stop()
        await asyncio.wait_for(waiting, WITHIN_S)
        assert last.engine == "a"


async def test_h20_sandbox_of_an_image_with_a_closed_tmp_is_used_again(all_have_it: Engines, untouched: None) -> None:
    """The mount on /tmp has the permissions of the image's folder, where code's user creates nothing."""
    options: dict[str, Any] = {"hosts": [all_have_it["a"].host], "image": IMAGE, "progress": lambda _: None}
    async with SandboxPool(1, max_alive=1, max_uses=10, **options) as pool:
        names = []
        for _ in range(2):
            async with AsyncSandbox(pool=pool) as box:
                assert (await box.run("import os; print(os.access('/tmp', os.W_OK))")).output == "False\n"
                names.append(box._managed.name)
    assert names[0] == names[1]


async def test_h20_pool_that_finds_no_room_names_each_engine(all_have_it: Engines, untouched: None) -> None:
    """Full engines and those that are out."""
    limited = [
        all_have_it["a"].host.model_copy(update={"capacity": 1}),
        DockerHost(url="unix:///nowhere/s", name="gone"),
    ]
    async with SandboxPool(
        1, max_alive=2, hosts=limited, image=IMAGE, acquire_timeout=6, progress=lambda _: None
    ) as pool:
        await pool.ready(WITHIN_S)
        async with AsyncSandbox(pool=pool) as first:
            assert first.engine == "a"
            with pytest.raises(SandboxError) as caught:
                await AsyncSandbox(pool=pool).start()
    assert "a: 1 of at most 1 sandbox; gone: " in str(caught.value)
    assert "No Docker engine at gone: there is no such socket." in str(caught.value)


async def test_h20_error_names_each_engine_when_all_are_out(untouched: None, tmp_path: Path) -> None:
    """Within the time that a pool's request waits."""
    dead = tmp_path / "dead"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(dead))  # and does not listen
    hosts = [DockerHost(url=f"unix://{tmp_path}/none", name="one"), DockerHost(url=f"unix://{dead}", name="two")]
    async with SandboxPool(1, hosts=hosts, acquire_timeout=4, progress=lambda _: None) as pool:
        with pytest.raises(SandboxError) as caught:
            await AsyncSandbox(pool=pool).start()
        assert "No Docker engine at one: there is no such socket." in str(caught.value)
        assert "No Docker engine at two: nothing listens there." in str(caught.value)
        await eventually(waits_out(hosts))


async def test_h20_engine_that_goes_out_again_soon_is_not_preferred_when_it_is_back(untouched, tmp_path, monkeypatch):
    """Else each task would be given to it, since it has no load, and would end when it goes out once more."""
    monkeypatch.setattr(placing, "BACK_PAUSE_S", 60.0)  # longer than a machine under load stands still
    path = tmp_path / "engine"
    flapping, steady = DockerHost(url=f"unix://{path}"), DockerHost(url=f"unix://{ENGINE}")
    engines, unlimited = placing.Placement(), time.monotonic() + 10 * WITHIN_S

    def next_engine() -> str:
        slot = engines.take([flapping, steady], {}, unlimited, Future())
        slot.release()
        return slot.host.label

    chosen = []
    with engines.in_use([flapping, steady]):
        loaded = engines.take([steady], {}, unlimited, Future())
        for _ in range(3):
            path.symlink_to(ENGINE)
            await eventually(lambda: engines.why_out(flapping) is None)
            chosen.append(next_engine())
            path.unlink()
            await eventually(lambda: engines.why_out(flapping) is not None)
        loaded.release()
    assert chosen == [flapping.label, flapping.label, steady.label]


async def test_h20_sandboxes_on_a_paused_engine_end_with_an_error_that_names_it(all_have_it, untouched, caplog):
    """Connections to it are accepted and nothing answers. New sandboxes start elsewhere, and it gets some when it goes on."""
    engines = all_have_it
    async with stopping([box_on(engines) for _ in range(3)]) as boxes:
        await start_all(boxes)
        (lost,) = [box for box in boxes if box.engine == "b"]
        running = asyncio.ensure_future(lost.run("import time; time.sleep(1000)", timeout=1000))
        await asyncio.sleep(0.2)
        with caplog.at_level(logging.INFO):
            engines["b"].pause()
            with pytest.raises(
                SandboxDied, match=r"its Docker engine b is out: The Docker engine b does not answer in time"
            ):
                await asyncio.wait_for(running, WITHIN_S)
            result = await asyncio.wait_for(lost.run("print('elsewhere')"), WITHIN_S)
            assert (result.output, result.state) == ("elsewhere\n", "lost")
            assert lost.engine in ("a", "c")
            engines["b"].resume()
            answers = "the Docker engine b answers again after "
            await eventually(lambda: any(answers in message for message in caplog.messages), WITHIN_S)
        mentioned = [message for message in caplog.messages if "engine b" in message]
        assert "the Docker engine b is out, which ends 1 sandbox on it: " in mentioned[0]
        assert answers in mentioned[-1]
        assert placement().why_out(engines["b"].host) is None
        boxes.append(box_on(engines))
        await boxes[-1].start()
        assert boxes[-1].engine == "b"
        # What the engine had kept of the old sandbox is removed.
        await eventually(lambda: engines.containers()["b"] == {boxes[-1]._managed.name}, WITHIN_S)


async def test_h20_start_on_an_engine_that_is_paused_goes_to_another_one(all_have_it: Engines, untouched: None) -> None:
    """Before anything is known about it."""
    engines = all_have_it
    engines["a"].pause()
    async with stopping([box_on([engines["a"].host, engines["b"].host]) for _ in range(4)]) as boxes:
        await asyncio.wait_for(asyncio.gather(*(box.start() for box in boxes)), WITHIN_S)
        assert {box.engine for box in boxes} == {"b"}


def double_in_two_steps(executor: CodeExecutor, task: Task) -> CodeActAgent:
    """An agent whose model is a script: a server for their requests would take longer than all else."""
    number = task.metadata["number"]
    says = [f"```python\n{code.format(number=number)}\n```" for code in (CODE, ANSWER)]
    return CodeActAgent("coder", executor, model_client=scripted(*says, *says), describe_environment=False, max_steps=5)


@pytest.mark.timeout(900)
async def test_h20_batch_survives_a_killed_and_a_paused_engine(all_have_it, nothing_left, tmp_path):
    """Each task has one row, and the rows say on which engine it ran."""
    engines = all_have_it
    events: list[BatchEvent] = []
    tasks = [double(number) for number in range(TASKS)]
    options: dict[str, Any] = {"hosts": engines.hosts, "image": IMAGE, "progress": lambda _: None}
    running = asyncio.ensure_future(
        rows_of(
            double_in_two_steps,
            tasks,
            tmp_path,
            sandbox="docker",
            concurrency=6,
            attempts=5,
            on_event=events.append,
            **options,
        )
    )
    await eventually(lambda: running.done() or (_finished(tmp_path) >= 12 and _engines(tmp_path) == set(NAMES)), 300)
    await asyncio.to_thread(engines["b"].end, signal.SIGKILL)
    engines["c"].pause()
    await eventually(waits_out([engines["b"].host, engines["c"].host]), WITHIN_S)
    finished = _finished(tmp_path)
    await eventually(lambda: running.done() or _finished(tmp_path) >= min(TASKS, finished + 12), 300)
    await asyncio.to_thread(engines.begin)
    rows = await running
    failed = {row.id: row.error for row in rows if row.outcome != "completed"}
    assert not failed
    assert {row.id: row.answer for row in rows} == {f"double/{number}": str(number * 2) for number in range(TASKS)}
    assert Counter(line["id"] for line in lines(tmp_path)) == dict.fromkeys((task.id for task in tasks), 1)
    assert {row.engine for row in rows} == {"a", "b", "c"}
    lost = {event.error_class for event in events if isinstance(event, AttemptFailed)}
    assert lost <= {"SandboxDied", "SandboxUnavailable", "SandboxTimeout", "SandboxStartError"}
    await eventually(lambda: engines.containers() == {"a": set(), "b": set(), "c": set()}, WITHIN_S)


async def test_h20_engines_that_can_not_be_used_get_no_sandboxes_and_are_named(all_have_it, nothing_left, caplog):
    """Certificates of another authority, nobody there, a version that is too old; no message has anything of a key."""
    with unusable(all_have_it) as hosts:
        bad = [host for host, _ in hosts.values()]
        async with stopping([box_on([*bad, all_have_it["a"].host]) for _ in range(4)]) as boxes:
            assert await start_all(boxes) == {"a": 4}
        async with SandboxPool(1, hosts=bad, image=IMAGE, acquire_timeout=4, progress=lambda _: None) as pool:
            with pytest.raises(SandboxError) as caught:
                await AsyncSandbox(pool=pool).start()
            said = str(caught.value)
            for name, (_, reason) in hosts.items():
                assert f"{name}: " in said
                assert reason in said
            await eventually(waits_out(bad), WITHIN_S)
    keys = [path.read_text().splitlines() for path in all_have_it.certificates.glob("*/key.pem")]
    shown = said + caplog.text
    assert len(keys) == 3
    assert not [line for key in keys for line in key if line in shown]


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
async def test_h20_variables_of_docker_have_no_influence_on_hosts(all_have_it, nothing_left, monkeypatch):
    """Neither on one with TLS, whether its certificate is checked or not, nor on one without."""
    a, b, c = all_have_it.all
    folder = all_have_it.certificates
    files = {"ca": "other/own-ca.pem", "cert": "good/cert.pem", "key": "good/key.pem"}
    unchecked = DockerTLS(**{name: str(folder / file) for name, file in files.items()}, verify=False)
    hosts = [
        a.host,
        DockerHost(url=b.address, name="plain"),
        DockerHost(url=c.host.url, tls=unchecked, name="unchecked"),
    ]
    with monkeypatch.context() as changed:
        changed.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
        changed.setenv("DOCKER_TLS_VERIFY", "1")
        changed.setenv("DOCKER_CERT_PATH", str(all_have_it.certificates / "other"))
        changed.setenv("DOCKER_CONTEXT", "none-such")
        async with stopping([box_on(hosts) for _ in hosts]) as boxes:
            assert await start_all(boxes) == {"a": 1, "plain": 1, "unchecked": 1}
            results = await asyncio.gather(*(box.run("print('works')") for box in boxes))
    assert [result.output for result in results] == ["works\n"] * 3


ASK = """
import urllib.request
print(open("/data/numbers.txt").read(), urllib.request.urlopen("http://allowed.example:{port}/", timeout=50).read())
"""


async def test_h20_data_and_allowed_domains_work_on_each_engine(all_have_it, nothing_left, tmp_path):
    """The files are sent there, and this process makes the requests."""
    (tmp_path / "numbers.txt").write_text("1 2 3")

    def reply(sock: socket.socket) -> None:
        read_request(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")

    with hosts_in(tmp_path) as web:
        port = web.serve(reply, "allowed.example").port
        allowed = [f"allowed.example:{port} in 127.0.0.0/8"]
        options: dict[str, Any] = {"data": [tmp_path / "numbers.txt"], "allow_domains": allowed}
        async with stopping([box_on(all_have_it, **options) for _ in NAMES]) as boxes:
            for box in boxes:
                box._managed.resolve_name = web.resolve  # type: ignore[method-assign]
            assert await start_all(boxes) == {"a": 1, "b": 1, "c": 1}
            results = await asyncio.gather(*(box.run(ASK.format(port=port)) for box in boxes))
    assert [result.output for result in results] == ["1 2 3 b'hi'\n"] * 3
    await eventually(lambda: all_have_it.containers() == {"a": set(), "b": set(), "c": set()}, WITHIN_S)


async def test_h20_sandboxes_of_dead_owners_are_removed_from_each_engine(all_have_it, nothing_left):
    """By the first start there; those of others are left alone."""
    life, _, own = owner_labels()[LIFE].rpartition("/")
    machine = owner_labels()[OWNER].rpartition(":")[0]
    dead = {KIND: SANDBOX, OWNER: f"{machine}:{NO_SUCH_PID}", LIFE: f"{life}/1"}
    elsewhere = {KIND: SANDBOX, OWNER: f"elsewhere:{NO_SUCH_PID}", LIFE: f"another/{own}"}
    for engine in all_have_it.all:
        with closing(connect(engine.address)) as client:
            for name, labels in (("dead", dead), ("elsewhere", elsewhere)):
                client.create_container(IMAGE, ["true"], name=f"codeact-{name}", labels=labels)
    # Other names: this process has looked for orphans at the engines' own.
    hosts = [host.model_copy(update={"name": f"new-{host.name}"}) for host in all_have_it.hosts]
    try:
        async with stopping([box_on(hosts) for _ in hosts]) as boxes:
            await start_all(boxes)
            left = {str(box.engine).removeprefix("new-"): {"codeact-elsewhere", box._managed.name} for box in boxes}
            assert set(left) == set(NAMES)
            await eventually(lambda: all_have_it.containers() == left, WITHIN_S)
    finally:
        for engine in all_have_it.all:
            with closing(connect(engine.address)) as client:
                client.remove_container("codeact-elsewhere", force=True)


async def test_h20_sandboxes_without_a_pool_survive_a_killed_and_a_paused_engine(all_have_it, nothing_left):
    """Starts that were under way are abandoned; both engines get sandboxes again when they answer."""
    engines = all_have_it
    out = waits_out([engines["b"].host, engines["c"].host])
    count = 15
    doubles = Doubles(lambda: box_on(engines), count)
    workers = [asyncio.ensure_future(doubles.work()) for _ in range(6)]
    await eventually(lambda: doubles.done.total() >= 6, WITHIN_S)
    await asyncio.to_thread(engines["b"].end, signal.SIGKILL)
    engines["c"].pause()
    with placement().in_use(engines.hosts):
        await eventually(out, WITHIN_S)
        await asyncio.gather(*workers)
        assert doubles.done == dict.fromkeys(range(count), 1)
        await asyncio.to_thread(engines.begin)
        await eventually(lambda: not any(map(placement().why_out, engines.hosts)), WITHIN_S)
        async with stopping([box_on(engines) for _ in range(3)]) as boxes:
            assert await start_all(boxes) == {"a": 1, "b": 1, "c": 1}
    await eventually(lambda: engines.containers() == {"a": set(), "b": set(), "c": set()}, WITHIN_S)


def _finished(out: Path) -> int:
    try:
        return (out / "results.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


def _engines(out: Path) -> set[str]:
    """Those on which a task has finished."""
    return {
        json.loads(line)["engine"] for line in (out / "results.jsonl").read_text().splitlines(True) if line[-1:] == "\n"
    }
