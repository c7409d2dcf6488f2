"""The comparison of batches: its tasks, its check of outputs, its measurement of processor time, and its page."""

import asyncio
import json

import pytest


def chunk(task_seconds, seconds, processor_s, **task):
    """Return a chunk of tasks as a worker reports it."""
    tasks = [
        {"id": str(number), "seconds": each, "errors": [], "wrong": None, "failed": False, **task}
        for number, each in enumerate(task_seconds)
    ]
    used = {"machine": processor_s, "containers": processor_s / 2, "client": processor_s / 4, "engine": 0.0}
    return {"seconds": seconds, "processor": used, "tasks": tasks}


def test_output_that_differs_from_the_recording_is_wrong(load):
    recorded = load("sidebyside.recorded")
    blocks = [
        {"code": "x = 1", "kind": "empty", "expect": ""},
        {"code": "print(x)", "kind": "value", "expect": "1"},
        {"code": "1 / 0", "kind": "error", "expect": "ZeroDivisionError"},
    ]
    right = ["", "1\n", "ZeroDivisionError: division by zero"]
    recorded.check(blocks, right)
    recorded.check(blocks, ["", "1\r\n", "1\nZeroDivisionError"], repeats=True)
    with pytest.raises(recorded.WrongOutput, match="block 2: '2' instead of '1'"):
        recorded.check(blocks, ["", "2\n", right[2]])
    with pytest.raises(recorded.WrongOutput, match="block 1: '0' instead of ''"):
        recorded.check(blocks, ["0", *right[1:]])
    with pytest.raises(recorded.WrongOutput, match="block 3: 'NameError' instead of 'ZeroDivisionError'"):
        recorded.check(blocks, [*right[:2], "NameError"])
    with pytest.raises(recorded.WrongOutput, match="2 blocks ran instead of 3"):
        recorded.check(blocks, right[:2])


def test_code_for_an_executor_without_variables_runs_earlier_blocks_again_up_to_their_errors(load):
    recorded = load("sidebyside.recorded")
    codes = recorded.scripts(
        [
            {"code": "x = 41", "kind": "empty"},
            {"code": "x += 1\nassert x == 0", "kind": "error"},
            {"code": "found = x", "kind": "value"},
        ]
    )
    names = {}
    exec(codes[2], names)
    assert names["found"] == 42
    with pytest.raises(AssertionError):
        exec(codes[1], {})


async def test_failed_attempt_is_repeated_and_counted_and_a_wrong_output_is_not(load):
    recorded = load("sidebyside.recorded")
    calls = []

    async def run(task):
        calls.append(task["id"])
        if task["id"] == "wrong":
            raise recorded.WrongOutput("block 1")
        if task["id"] == "breaks" or (task["id"] == "flaky" and calls.count("flaky") == 1):
            raise OSError("connection closed")

    async with asyncio.timeout(30):
        found = await recorded.run_all(run, [{"id": name} for name in ("good", "flaky", "breaks", "wrong")], 1)
    assert [(task["id"], len(task["errors"]), task["wrong"], task["failed"]) for task in found["tasks"]] == [
        ("good", 0, None, False),
        ("flaky", 1, None, False),
        ("breaks", 3, None, True),
        ("wrong", 0, "wrong: block 1", False),
    ]
    assert found["seconds"] > 0
    assert found["processor"].keys() == {"machine", "containers", "client", "engine"}


def test_targets_are_judged_by_tasks_a_minute_and_processor_time(load):
    page, variants = load("sidebyside.batch_page"), load("sidebyside.batch_variants")
    own = variants.OURS
    figures = {
        "chunks": {
            "8": {
                variants.OURS: [chunk([1.0] * 80, 10, 8)] * 2,
                variants.AUTOGEN: [chunk([10.0] * 8, 10, 4)],
                variants.SMOLAGENTS: [chunk([7.0] * 8, 7, 8, errors=["OSError: closed"])],
            },
            "32": {variants.OURS: [chunk([1.0] * 64, 2, 8)], variants.ECHO: [chunk([0.1] * 100, 1, 1)]},
        }
    }
    missed, reached = "**missed**:", "reached:"
    assert page.targets(figures).splitlines()[2:3] == [
        f"| {own} | {missed} 10× | {missed} 7× | {missed} 0.32× | {reached} 0.20× |",
    ]
    whole = {
        **figures,
        "sessions": 300,
        "blocks": 600,
        "machine": "2 processors",
        "day": "1 May 2026",
        "note": "",
        "versions": {"autogen-ext": "0.7.5"},
        "absent": {"x": "the time was over"},
        "discarded": [],
        "background": {"before": 0.02, "after": 0.01},
    }
    table = page.rates(whole)
    assert "| smolagents, Docker | - | 68.6 (1.43×) | - | 1.000 s |" in table
    assert "300 recorded sessions (600 blocks) as agent runs" in table
    assert page.missing(whole).splitlines() == [
        "- Not measured: x: the time was over.",
        "- smolagents, Docker: failed attempts 8, tasks not done 0.",
        "- Use of one processor by other processes: 2 % before, 1 % after the run.",
    ]


class Answers:
    """Stands for a worker, and gives prepared answers."""

    def __init__(self, *found):
        self.found = list(found)
        self.samples = []

    async def request(self, do, *, tasks, **_):
        self.samples.append([task["id"] for task in tasks])
        return self.found.pop(0)


def test_cell_for_which_there_is_no_time_is_named_and_a_chunk_that_would_end_too_late_does_not_begin(load, shared_data):
    batch = load("batch")
    run = batch.Run(seed=0, minutes=0)
    run.chunks["2"][batch.OURS].append({"took_s": 1.0})
    assert [run.is_time_for((2, batch.OURS)), run.is_time_for((2, batch.ECHO))] == [False, False]
    assert run.absent == {f"{batch.ECHO}, 2 at once": "the time was over"}
    run = batch.Run(seed=0, minutes=1)
    run.chunks["2"][batch.OURS].append({"took_s": 61.0})
    assert [run.is_time_for((2, batch.OURS)), run.is_time_for((2, batch.ECHO))] == [False, True]


async def test_chunk_with_a_wrong_output_is_discarded_and_run_again_and_the_second_one_ends_the_variant(
    load, shared_data
):
    batch = load("batch")
    run, good = batch.Run(seed=0), chunk([1.0] * 4, 4, 1)
    run.remotes["own"] = Answers(
        chunk([1.0] * 4, 4, 1, wrong="a: 1 instead of 2"), good, chunk([1.0] * 4, 4, 1, wrong="b")
    )
    await run._cell(2, batch.OURS, 4)
    assert run.chunks["2"][batch.OURS] == [good]
    assert run.discarded == [f"{batch.OURS}, 2 at once: a: 1 instead of 2"]
    assert [len(sample) for sample in run.remotes["own"].samples] == [4, 4]
    await run._cell(2, batch.OURS, 4)
    assert batch.OURS not in run.chunks["2"]
    assert run.absent == {batch.OURS: "wrong output twice: b"}
    await run._cell(2, batch.OURS, 4)
    assert len(run.remotes["own"].samples) == 3


@pytest.mark.usefixtures("bubblewrap")
async def test_recorded_sessions_run_as_a_batch_and_their_logs_contain_the_recorded_outputs(load, shared_data):
    recorded, ours = load("sidebyside.recorded"), load("sidebyside.batch_ours")
    tasks = recorded.tasks(4)
    async with asyncio.timeout(50):
        found = await ours.batch(tasks, 2, "bubblewrap")
        tasks[0]["blocks"][0] |= {"kind": "value", "expect": "another output"}
        changed = await ours.batch(tasks[:1], 1, "bubblewrap")
    assert sorted(task["id"] for task in found["tasks"]) == sorted(task["id"] for task in tasks)
    assert [task for task in found["tasks"] if task["errors"] or task["wrong"] or task["failed"]] == []
    assert "instead of 'another output'" in changed["tasks"][0]["wrong"]


@pytest.mark.usefixtures("bubblewrap")
async def test_batch_of_many_tasks_is_sampled(load, tmp_path):
    many = load("batch_many")
    async with asyncio.timeout(50):
        found = await many.measure(4, 2, "bubblewrap", tmp_path)
    assert found["outcomes"] == {"completed": 4}
    assert [sample["done"] for sample in found["samples"]] == [1, 2, 3, 4]
    assert json.dumps(found)


@pytest.mark.usefixtures("bubblewrap")
async def test_blocks_after_pauses_are_measured(load, monkeypatch):
    worker = load("sidebyside.worker").Worker(["ours", "paused_blocks"])
    monkeypatch.setattr(load("sidebyside.paused_blocks"), "PAUSE_S", (0.01, 0.02))
    keys, found = ["a", "b"], []
    async with asyncio.timeout(50):
        await worker.open("bubblewrap, session", keys)
        try:
            probes = {"back to back": {"count": 3}, "agents": {"seconds": 0.1}, "idle machine": {"count": 2}}
            for probe, arguments in probes.items():
                found.append(await worker.probe(probe, keys=keys, seed=1, **arguments))
        finally:
            await worker.close(keys)
    assert [len(found[0]), len(found[2])] == [3, 2]
    assert len(found[1]) >= len(keys)
    assert all(seconds > 0 for blocks in found for seconds in blocks)


def test_prediction_counts_blocks_starts_idle_sandboxes_and_memory(load):
    page = load("sidebyside.scaling_page")

    def part(seconds, **others):
        return {"seconds": 2.0, "processor": {"machine": seconds}, **others}

    alive = {
        "count": 10,
        "sandbox": "docker",
        "background": part(0.1),
        "start": part(2.0),
        "stop": part(1.0),
        "idle": part(0.3),
        "blocks": part(0.3, blocks=30),
        "memory": 200e6,
        "driver": {"rss": 1e6, "descriptors": 80, "threads": 1},
    }
    model = page.costs([{**alive, "count": 5}, alive, {**alive, "sandbox": "bubblewrap", "count": 99}])
    assert model == pytest.approx(
        {"memory": 20e6, "driver": 1e5, "descriptors": 8, "start": 0.2, "stop": 0.1, "block": 0.01, "idle": 0.01}
    )
    # 360 blocks a second, 1 start and stop a second, 3,600 idle sandboxes.
    assert page.predict(model, 3600) == pytest.approx(
        {
            "memory": 72e9,
            "processors": 3.6 + 0.3 + 36,
            "driver": 360e6,
            "descriptors": 28800,
        }
    )
    assert page.costs([{**alive, "sandbox": "bubblewrap"}]) is None


@pytest.mark.usefixtures("bubblewrap")
async def test_cost_of_sandboxes_that_are_alive_is_measured(load, monkeypatch):
    probes, page = load("sidebyside.scaling_probes"), load("sidebyside.scaling_page")
    monkeypatch.setattr(probes, "IDLE_S", 0.1)
    async with asyncio.timeout(50):
        found = await probes.alive(2, "bubblewrap", blocks=1)
    assert found["blocks"]["blocks"] == 2
    assert found["driver"]["descriptors"] > 0
    model = page.costs([{**found, "sandbox": "docker"}])
    assert model["start"] > 0
    assert model["block"] > 0
    assert model["memory"] != 0


@pytest.mark.usefixtures("docker_engine")
async def test_bytes_of_blocks_come_back_from_containers(load, shared_data):
    recorded, echo = load("sidebyside.recorded"), load("sidebyside.batch_echo")
    tasks = recorded.tasks(3)
    async with asyncio.timeout(50):
        found = [await probe(tasks, 2) for probe in (echo.attached, echo.fresh)]
    for figures in found:
        assert sorted(task["id"] for task in figures["tasks"]) == sorted(task["id"] for task in tasks)
        assert [task for task in figures["tasks"] if task["errors"] or task["wrong"] or task["failed"]] == []
