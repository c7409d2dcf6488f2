"""The event loop of a session's cells: it runs only while a cell awaits, and is never used again after a restored checkpoint."""

import sys

MAX_NAMED_TASKS = 10
TASK_NAME_LIMIT = 100


class CellLoop:
    """An asyncio event loop that is made when the first cell awaits something.

    Nothing of asyncio is imported before: that takes longer than a short block.
    """

    def __init__(self):
        self._loop = None
        self._pool = None

    def run(self, coroutine):
        """Run a coroutine until it ends; other tasks of the loop run meanwhile."""
        loop = self._open_loop()
        try:
            # What it raises does not pass through asyncio, so that a traceback shows no function of asyncio.
            result, error = loop.run_until_complete(_caught(coroutine))
        finally:
            self._end_idle_threads(loop)
        if error is not None:
            raise error
        return result

    def call(self, function):
        """Call a function while the loop runs, so that it can start tasks."""

        async def call():
            return function()

        return self.run(call())

    def discard(self):
        """Give up the loop in a restored checkpoint: threads that it waits for are gone."""
        loop, self._loop, self._pool = self._loop, None, None
        names = []
        if loop is None:
            return names
        try:
            asyncio = sys.modules["asyncio"]
            for task in asyncio.all_tasks(loop):
                names.append(_name(task))
                # Not `task.cancel()`, which only takes effect when the loop runs.
                asyncio.Future.cancel(task)
            asyncio.set_event_loop(None)
        except Exception:
            pass  # the code has changed asyncio; the session goes on without the loop all the same
        return sorted(names)[:MAX_NAMED_TASKS]

    def _open_loop(self):
        import asyncio

        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
            self._renew_pool(self._loop)
        # `asyncio.run` of an earlier cell leaves none.
        asyncio.set_event_loop(self._loop)
        return self._loop

    def _renew_pool(self, loop):
        from concurrent.futures import ThreadPoolExecutor

        self._pool = ThreadPoolExecutor(thread_name_prefix="asyncio")
        loop.set_default_executor(self._pool)

    def _end_idle_threads(self, loop):
        """End the threads of `asyncio.to_thread`: while there is one, no checkpoint can be taken ahead."""
        asyncio = sys.modules["asyncio"]
        if self._pool is None or loop.is_closed() or not self._pool._threads or asyncio.all_tasks(loop):
            return
        self._pool.shutdown(wait=False)
        self._renew_pool(loop)


async def _caught(coroutine):
    try:
        return await coroutine, None
    except BaseException as error:  # whatever the cell raises is its result, also SystemExit
        return None, error


def _name(task):
    try:
        return str(task.get_coro().__qualname__)[:TASK_NAME_LIMIT]
    except Exception:  # a coroutine may be an object of any class
        return "a task"
