"""What a block has used: processor time and memory."""

from typing import Any

import pytest

from codeact_sandbox import AsyncSandbox

BUSY = "end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


@pytest.mark.parametrize("backend", ["docker", "bubblewrap"])
@pytest.mark.parametrize("mode", ["session", "process"])
async def test_results_have_processor_time_and_memory(request: pytest.FixtureRequest, backend: Any, mode: Any) -> None:
    request.getfixturevalue("docker_engine" if backend == "docker" else "bubblewrap")
    async with AsyncSandbox(backend, mode=mode) as box:
        busy = await box.run(f"import time\n{BUSY}\nx = b'x' * 60_000_000")
        idle = await box.run("import time; time.sleep(0.3)")
        child = await box.run(f"python3 -c 'import time\n{BUSY}'", "sh")
        endless = await box.run("while True: pass", timeout=0.5)
    assert busy.cpu_s >= 0.25
    assert busy.peak_memory > 60_000_000
    assert idle.cpu_s < 0.2
    assert child.cpu_s >= 0.25
    assert 1_000_000 < child.peak_memory < 60_000_000
    assert endless.outcome == "timeout"
    assert endless.cpu_s > 0
    assert endless.peak_memory > 1_000_000
