"""A sandbox with GPUs; on a Docker engine that has none, the error that says so.

python samples/gpu.py
"""

import asyncio
import json

from autogen_agentchat.messages import TextMessage
from autogen_agentchat.ui import Console
from docker.types import DeviceRequest

from autogen_codeact.agents import CodeExecutorAgent
from autogen_codeact.executors import DockerCommandLineCodeExecutor, SandboxStartError

CODE = """\
```sh
nvidia-smi --list-gpus
```
"""


async def main() -> None:
    # What `docker run --gpus all` asks for. DeviceRequest(device_ids=["0"], …) asks for one of them.
    all_gpus = DeviceRequest(count=-1, capabilities=[["gpu"]])
    executor = DockerCommandLineCodeExecutor(device_requests=[all_gpus])
    print("In a configuration it looks like this:")
    print(json.dumps({"device_requests": executor.dump_component().config["device_requests"]}), "\n")

    print("Starting a sandbox with every GPU of the engine ...")
    try:
        await executor.start()
    except SandboxStartError as error:
        if "device_requests" not in str(error):
            raise
        print(f"SandboxStartError: {error}\n")
        print("This engine has no GPU to give: it needs an NVIDIA GPU, its driver and the NVIDIA Container Toolkit.")
        print("Nothing was started in its place: a sandbox that lacks what was asked for is never chosen silently.")
        return
    try:
        agent = CodeExecutorAgent("runner", executor)
        await Console(agent.run_stream(task=TextMessage(content=CODE, source="user")))
    finally:
        await executor.stop()


if __name__ == "__main__":
    asyncio.run(main())
