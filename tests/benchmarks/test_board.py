"""The board: its escapes get out where nothing holds them, and not out of a sandbox; its page says what got through."""

import asyncio

import pytest

ANYBODY = [
    *("network_loopback", "network_abstract_socket", "files_read", "files_write", "processes_see", "processes_signal"),
    *("limits_survive", "secrets_environment"),
]
"""Escapes that need neither rights nor much time where there is no sandbox."""


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.timeout(300)
async def test_escapes_get_out_of_a_plain_process_and_not_out_of_a_sandbox(load, monkeypatch):
    containment, harness = load("sidebyside.containment"), load("sidebyside.harness")
    # The abuse suite, which may run beside this, looks for shared memory that a sandbox has left.
    with containment.Host(share=False) as host:
        monkeypatch.setenv("BOARD_SECRET", host.secret)
        async with asyncio.timeout(280), harness.Bench(quick=True) as bench:
            free = await containment.contain(bench, ["bare subprocess"], host, ANYBODY)
            held = await containment.contain(bench, ["bubblewrap, session"], host, list(containment.names()))
    assert free == {"bare subprocess": dict.fromkeys(ANYBODY, False)}
    assert held == {"bubblewrap, session": dict.fromkeys(containment.names(), True)}
    assert len(containment.names()) == 30


def test_page_counts_what_held_and_says_what_got_through(load):
    board, containment = load("board"), load("sidebyside.containment")
    first, second = list(containment.names())[:2]
    figures = {
        "seconds": {board.START: {"docker, session": [0.1, 0.2, 0.3]}, board.TASK: {"Monty": [0.004]}},
        "held": {"docker, session": {first: True, second: True}, "Monty": {first: True, second: False}},
        "absent": {"microsandbox": "it did not start"},
        "versions": {"pydantic-monty": "1.5.0"},
        "machine": "2 processors",
        "day": "1 January 2026",
    }
    lines = board.text(figures).splitlines()
    assert "| **ours**, docker | 2 of 2 | 200 ms | - | - |" in lines
    assert "| Monty (1.5.0) | 1 of 2 | - | - | 4 ms |" in lines
    assert "- Monty (1.5.0): 2" in lines
    assert "- microsandbox: it did not start" in lines
