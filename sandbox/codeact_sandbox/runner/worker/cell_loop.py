"""The event loop of a session: as in a notebook, it counts as running in each cell, also where no cell awaits anything.

It makes progress only while a cell runs. `asyncio.run` works as in a script, which a notebook would refuse.
"""

import functools
import sys
import threading

from . import imports, stdio

HIDDEN = "a file asyncio.py of yours hides Python's module asyncio, which `await` needs: rename it"
MAX_TURNS = 100
MAX_NAMED_TASKS = 10
TASK_NAME_LIMIT = 100


class NoLoop:
    """For a cell that is run only to touch memory: no event loop is made."""

    def __enter__(self):
        """Do nothing."""

    def __exit__(self, *_error):
        """Do nothing."""

    def finish_cell(self):
        """Do nothing."""


class CellLoop:
    """The event loop, made when a cell has imported asyncio: that import takes longer than a short cell."""

    def __init__(self):
        self._loop = None
        self._pool = None
        self._in_cell = False
        self._asyncio = None
        imports.Hooks.on_asyncio = self._on_import  # that of the session: it makes only one

    def __enter__(self):
        """Let the loop count as running until the end of the cell."""
        self._in_cell = True
        if "asyncio" in sys.modules:
            self._on_import(sys.modules["asyncio"])
            # In a notebook, tasks go on between two cells.
            self._take_turns(MAX_TURNS)

    def __exit__(self, *_error):
        self._in_cell = False
        if self._asyncio is not None:
            self._asyncio._set_running_loop(None)

    def run(self, coroutine):
        """Run a coroutine until it ends; other tasks of the loop run meanwhile."""
        self._on_import(imports.own_import("asyncio"))
        loop = self._loop
        if loop is None:
            raise RuntimeError(HIDDEN)
        try:
            # What it raises does not pass through asyncio, so that a traceback shows no function of asyncio.
            result, error = loop.run_until_complete(_caught(coroutine))
        finally:
            self._end_idle_threads(loop)
        if error is not None:
            raise error
        return result

    def finish_cell(self):
        """Let tasks begin that a cell without `await` has created."""
        if self._asyncio is not None:
            self._take_turns(1)

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

    def _on_import(self, asyncio):
        if not hasattr(asyncio, "_set_running_loop"):  # a file of the code with that name
            return
        if not self._in_cell or threading.current_thread() is not threading.main_thread():
            return
        if self._asyncio is None:
            self._asyncio = asyncio
            for owner, names in (
                (asyncio, ("run",)),
                (getattr(asyncio, "Runner", None), ("run",)),
                (asyncio.BaseEventLoop, ("run_forever", "run_until_complete")),
            ):
                for name in names if owner is not None else ():
                    setattr(owner, name, self._leaving(getattr(owner, name)))
        if self._loop is None or self._loop.is_closed():
            self._loop = asyncio.new_event_loop()
            self._renew_pool(self._loop)
        # `asyncio.run` of an earlier cell leaves none.
        asyncio.set_event_loop(self._loop)
        asyncio._set_running_loop(self._loop)

    def _leaving(self, function):
        """Return a function of asyncio that finds no running loop if the only one is that of the cells, which waits."""

        @functools.wraps(function)
        def call(*args, **kwargs):
            running = self._asyncio._get_running_loop()
            if running is None or running is not self._loop or running.is_running():
                return function(*args, **kwargs)
            self._asyncio._set_running_loop(None)
            try:
                return function(*args, **kwargs)
            finally:
                self._asyncio._set_running_loop(running)

        return call

    def _take_turns(self, most):
        """Run what is due, for at most so many turns of the loop."""
        loop = self._loop
        for _ in range(most):
            if loop is None or loop.is_closed() or not (loop._ready or loop._scheduled):
                return
            is_waiting = not loop._ready
            loop.call_soon(loop.stop)
            loop.run_forever()
            if is_waiting and not loop._ready:
                return

    def _renew_pool(self, loop):
        self._pool = stdio.thread_pool()(thread_name_prefix="asyncio")
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
