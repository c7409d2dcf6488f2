"""The program inside the sandbox: standard library only, Python 3.8+, sent over the stream and not imported by the host (but for
value_codec and limits in `worker/values.py`, which both ends need).

A folder for each kind of process, and one for what all use. A folder imports only those that stand above it here:

shared/      wire (frames), system (Linux interfaces), folders (copying and removing), packages (what pip installs)

worker/      Runs blocks: one, and exits (process mode and commands), or one after the other (the interpreter of a session).
             worker (requests of the supervisor), interpreter, execution, stdio,
             cells (cells of a session), cell_text, values (their text, event loop and printed values),
             ipython_shell, small_shell (what `get_ipython()` returns), magics, commands (`%` and `!`),
             displays (what code shows, on its way), display (`display()` and `_repr_*_` methods), figures (matplotlib),
             imports, ipython_display (hooks for when code imports matplotlib, IPython or plotly),
             tools, tool_values, value_codec, tool_client (host tools), checkpoint_fork

zygote/      A warm interpreter that has run no user code. Forks workers.
             zygote

supervisor/  PID 1. Holds the stream to the host, starts blocks, enforces deadlines, limits output, kills and reaps processes.
             supervisor (requests of the host), scheduler (which block runs when), event_loop,
             block, process_block, session_block (from a request to its result), block_report,
             output_capture,
             session, checkpoints, session_environment (a session and its checkpoints),
             worker_processes (the zygote and the workers),
             tool_relay, channels, proxy (calls of host tools, and network connections of both directions),
             files (of the workspace)

What one block passes through, from the host's request to the host's result:

supervisor   Supervisor._on_host_data       reads RUN_BLOCK
             Supervisor._run_block          makes a ProcessBlock or a SessionBlock of it
             Scheduler.submit               queues it until there is room
             Block.start                    chooses the worker: the one forked ahead, or the session's
             Block.send_request             sends RUN_BLOCK with the pipes for the output; starts the deadline
worker       Worker.serve                   reads RUN_BLOCK
             Worker._run_script             process mode; or _run_cell in a session, _run_command for other languages
             execution.run_script           executes the code; in a session Cells.run
             Worker._report                 sends BLOCK_DONE
supervisor   Block.on_frame                 keeps the report; or on_worker_exit, kill (deadline, cancel)
             Block.finish                   sends BLOCK_RESULT with the tail of the output and the changed files
             Scheduler.finished             cleans up, and starts the next block
"""
