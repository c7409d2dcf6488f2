"""Part L, case 10: background jobs of agents that flood, never end, or are too many."""

import pytest

from tests.agents import conftest
from tests.agents.support import received_by
from tests.agents.test_background import LEFT, agent_of, outputs, python, started

pytestmark = pytest.mark.timeout(120)
backend = conftest.backend


async def test_l10_jobs_that_flood_or_never_end_are_bounded_and_end_with_the_turn(backend: str) -> None:
    """One that floods, one that ignores signals, and more than may run."""
    code = (
        "job = run_in_background('yes flood')\nimport time; time.sleep(0.5); print(len(job.output()) <= 200_000)",
        "run_in_background(['sh', '-c', 'trap \"\" TERM INT HUP; while :; do sleep 3917; done'])\n"
        "from concurrent.futures import ThreadPoolExecutor as Pool\n"
        "with Pool(40) as pool:  # many calls at once\n"
        "    calls = [pool.submit(run_in_background, ['sleep', '3917']) for _ in range(40)]\n"
        "errors = list(filter(None, (call.exception() for call in calls)))\nprint(len(errors))\nraise errors[0]",
    )
    async with started(backend) as executor:
        agent, client = agent_of(executor, *map(python, code), "Done.", "Done.")
        result = await agent.run(task="Go.")
        assert (await executor.exec(LEFT)).stdout == "0\n"
        assert (await executor.exec("cat /proc/*/cmdline | grep -ac 'yes.floo[d]'")).stdout == "0\n"
    first, second = outputs(result.messages)
    assert first == "True\n"
    assert second.startswith("26\n")  # two run before
    assert "16 background jobs run already: wait for one, or stop one" in second
    news = [event.metadata["jobs"] for event in result.messages if "jobs" in event.metadata]
    assert news[0].startswith("[job 1 (yes flood) runs; its new output:]\n[…]\n")
    assert all(len(each) < 4_100 + 200 * 17 for each in news)
    assert all(len(str(message.content)) < 20_000 for message in received_by(client)[-1])


async def test_l10_many_jobs_are_forgotten_and_shown_within_bounds(backend: str) -> None:
    """What the model is told of them has a limit, too."""
    code = "for n in range(40): run_in_background('yes' + ' | head -c 5000').wait(20)"
    async with started(backend) as executor:
        agent, client = agent_of(executor, python(code), "Done.")
        await agent.run(task="Go.")
    shown = str(received_by(client)[1][-1].content)
    assert "[24 further jobs have ended]" in shown
    assert 10_000 < len(shown) < 20_000
