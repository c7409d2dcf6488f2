"""What an arm is; standard library only, because it is loaded in each peer's own environment."""

import asyncio

TIMEOUT_S = 120


class WrongAnswer(Exception):
    """An arm did not do what it is measured for."""


class Arm:
    """Something that runs code.

    An arm has one life: `start`, blocks, `stop`. What is not its user's to wait for (a pool that fills) is done before, in
    `prepare`, or after, in `clear`.
    """

    languages = ("python", "sh")

    async def prepare(self):
        """What happens before anybody waits."""

    async def start(self):
        """Be ready for the first block."""

    async def run(self, language, code):
        """Run a block; its output."""
        raise NotImplementedError

    async def run_beside(self, language, code):
        """The same where others run at the same time."""
        return await self.run(language, code)

    async def stop(self):
        """End."""

    async def clear(self):
        """What happens when nobody waits any more."""


class BlockingArm(Arm):
    """One whose library blocks: called directly, as its users do, and in a thread only where blocks run at once."""

    def start_now(self):
        """Be ready for the first block."""

    def run_now(self, language, code):
        """Run a block; its output."""
        raise NotImplementedError

    def stop_now(self):
        """End."""

    async def start(self):
        self.start_now()

    async def run(self, language, code):
        return self.run_now(language, code)

    async def run_beside(self, language, code):
        return await asyncio.to_thread(self.run_now, language, code)

    async def stop(self):
        await asyncio.to_thread(self.stop_now)
