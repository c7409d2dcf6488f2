"""The interface of a variant; standard library only, because it is loaded in each library's own environment."""

import asyncio

TIMEOUT_S = 120


class WrongAnswer(Exception):
    """A variant gave a wrong result, so its time does not count."""


class Variant:
    """Something that runs code.

    An object is started once, runs blocks, and is stopped. Work that a user does not wait for (filling a pool) is done before,
    in `prepare`, or afterwards, in `clear`; it is not measured.
    """

    languages = ("python", "sh")

    async def prepare(self):
        """Prepare without being measured."""

    async def start(self):
        """Start, until the first block can run."""

    async def run(self, language, code):
        """Run a block and return its output."""
        raise NotImplementedError

    async def run_concurrently(self, language, code):
        """Run a block while others run at the same time."""
        return await self.run(language, code)

    async def stop(self):
        """Stop."""

    async def clear(self):
        """Clean up without being measured."""


class BlockingVariant(Variant):
    """A variant with a blocking library: called directly, as its users do, and in a thread only if blocks run concurrently."""

    def start_now(self):
        """Start, until the first block can run."""

    def run_now(self, language, code):
        """Run a block and return its output."""
        raise NotImplementedError

    def stop_now(self):
        """Stop."""

    async def start(self):
        self.start_now()

    async def run(self, language, code):
        return self.run_now(language, code)

    async def run_concurrently(self, language, code):
        return await asyncio.to_thread(self.run_now, language, code)

    async def stop(self):
        await asyncio.to_thread(self.stop_now)
