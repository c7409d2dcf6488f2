r"""The documents that the viewer's page and the HTML export show, as JSON objects.

Text is text, never HTML: whoever shows it has to escape it. In all text but that of displays,
terminal colours are removed, and
control and bidi characters are replaced by visible ones such as `\x1b` and `\u202e`. Long text is
shortened in its middle; a field
`…_bytes` beside it then says how long it was, and is null if all of it is there. Numbers are
finite.

A run's header:
    id, name, kind ("agent" or "team"), task, agents: [{name, kind, model or null}], started (ISO
    8601, UTC)
    outcome: running, completed, failed, cancelled, waiting; interrupted: its process has ended
    before it, as far as the log was read
    stop_reason, error ("ValueError: message"), each or null
    steps, blocks, model_calls, prompt_tokens, completion_tokens, duration_s, resumed, gaps
    cost: in US dollars; null if prices are not known
    timing: {model_s, sandbox_s, tools_s}, sums over all steps
    live: whether its log is still being written; indexed: whether it has been read to its present
    end
    revision: grows with each change of a step; `changes?since=` takes it
    controls: whether this page can answer questions, and stop the run if it goes on
A step; a field that is missing is empty or does not apply:
    number (from 1, without gaps), agent, time (ISO 8601, UTC: when it began), duration_s, running,
    usage: {prompt_tokens,
    completion_tokens} or null
    kind: task, message, model_call, block, decision, handoff, resumed, gap, event, end
    text, text_bytes; thought: what the model thought before it; notes: remarks, such as why code
    was not run; error
    target (handoff): to whom; retry (decision): whether it is tried again; stop_reason (end)
    code, code_bytes, language, spans (block): [[class, text], …] of the code, see
    `codeact_sandbox.highlight`, or null
    outcome (block): ok, error, timeout, oom, crashed, denied, interrupted, running; (end): that of
    the run
    exit_code, output, output_bytes, value, state ("kept", "restored", "lost" or null); truncated:
    bytes that the sandbox dropped
    displays: [{name, data}], data: by MIME type text (JSON types as JSON text), or {file:
    reference}. HTML and SVG are what the code
    wrote: show them in sandboxed frames only
    calls: [{name, arguments: {name: JSON text}, outcome: running, ok, error, refused, timeout or
    cancelled, result, error, duration_s, images: [reference]}]; of a message: calls that a model makes
    itself
    connections: [{host, port, allowed, sent, received, reason}]
    files: [{name, download: what a copy is called, change: "added" or "changed", size, diff: a
    unified diff or null, file: reference or
    null, note}]
A reference to a file in the run's folder: sha256 (null if its content was left out, and note says
why), size, media_type, note
A summary of a step: number, kind, agent, title (at most 120 characters, one line), outcome, state,
running
A question: id, agent, kind ("call" or "code"), tool, arguments, text
Changes of a run that goes on: header (its revision is that of the last summary), summaries,
questions: all that wait for an answer
"""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
