"""Monty, an interpreter of a subset of Python; runs in an environment with its newest release."""

import pydantic_monty

from .variant import BlockingVariant


class Session(BlockingVariant):
    """A session in a worker process of its own."""

    languages = ("python",)

    def start_now(self):
        self.pool = pydantic_monty.Monty()
        self.pool.__enter__()
        self.session = self.pool.checkout()
        self.session.__enter__()

    def run_now(self, language, code):
        output = pydantic_monty.CollectString()
        try:
            self.session.feed_run(code, print_callback=output)
        except pydantic_monty.MontyError as error:
            return f"{output.output}\n{error}"
        return output.output

    def stop_now(self):
        self.session.__exit__(None, None, None)
        self.pool.__exit__(None, None, None)


VARIANTS = {"Monty": Session}
PROBES = {}
