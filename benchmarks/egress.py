"""Measure requests to a server from sandboxes with `allow_domains`, and directly from the host, in one run.

    python benchmarks/egress.py [--megabytes 200] [--requests 100] [--rounds 3]

The same client (urllib) fetches from the same server on loopback: from a process of the host, from bubblewrap, from Docker. Each
figure is a median, with its ratio to the direct one. Needs bubblewrap, a Docker engine, the sandbox image and trustme.
"""

import argparse
import asyncio
import json
import multiprocessing
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import trustme
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock

from autogen_codeact.executors import BubblewrapCommandLineCodeExecutor, DockerCommandLineCodeExecutor

HOST = "localhost"
CLIENT = """
import json, ssl, time, urllib.request
context = ssl.create_default_context(cafile="ca.pem")

def fetch(scheme, port, path):
    with urllib.request.urlopen(f"{{scheme}}://{host}:{{port}}/{{path}}", context=context) as response:
        size = 0
        while piece := response.read(65536):
            size += len(piece)
    return size

def timed(*what):
    began = time.perf_counter()
    size = fetch(*what)
    return time.perf_counter() - began, size

found = {{}}
for scheme, port in {ports!r}.items():
    fetch(scheme, port, 1000)
    took, size = timed(scheme, port, {size})
    assert size == {size}, size
    found[scheme + ", MB/s"] = size / took / 1e6
    times = sorted(timed(scheme, port, 1000)[0] for _ in range({requests}))
    found[scheme + ", 1 kB, ms p50"] = times[len(times) // 2] * 1000
    found[scheme + ", 1 kB, ms p95"] = times[len(times) * 95 // 100] * 1000
print(json.dumps(found))
"""


def serve(listener, certificate):
    """Respond to each request with the number of bytes in its path."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    piece = bytes(256 * 1024)
    while True:
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            sock = context.wrap_socket(sock, server_side=True)
        with sock:
            head = b""
            while b"\r\n\r\n" not in head:
                head += sock.recv(65536)
            left = int(head.split()[1][1:])
            sock.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {left}\r\nConnection: close\r\n\r\n".encode())
            while left:
                sent = min(left, len(piece))
                sock.sendall(piece[:sent])
                left -= sent


async def in_sandbox(make, folder, ports, code):
    """Run the client in a sandbox and return its measurements."""
    allowed = [f"{HOST}:{port} in 127.0.0.0/8" for port in ports.values()]
    executor = make(work_dir=folder, timeout=600, allow_domains=allowed)
    executor.sandbox.resolve_name = lambda _: ["127.0.0.1"]
    async with executor:
        # `NO_PROXY` excludes loopback, where the server's name resolves to.
        code = f"import os\nos.environ['no_proxy'] = os.environ['NO_PROXY'] = ''\n{code}"
        result = await executor.execute_code_blocks([CodeBlock(code=code, language="python")], CancellationToken())
    if result.exit_code != 0:
        raise SystemExit(f"{make.__name__}: {result.output} {result.notes}")
    return json.loads(result.output)


async def directly(folder, code):
    """Run the client on the host and return its measurements."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    return json.loads(done.stdout)


async def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ca = trustme.CA()
        ca.cert_pem.write_to_path(str(folder / "ca.pem"))
        certificate = folder / "server.pem"
        ca.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(str(certificate))
        servers, ports = [], {}
        for scheme, chain in (("http", None), ("https", certificate)):
            listener = socket.create_server(("127.0.0.1", 0), backlog=128)
            ports[scheme] = listener.getsockname()[1]
            servers.append(multiprocessing.Process(target=serve, args=(listener, chain), daemon=True))
            servers[-1].start()
        code = CLIENT.format(host=HOST, ports=ports, size=options.megabytes * 1_000_000, requests=options.requests)
        clients = {
            "direct": lambda: directly(folder, code),
            "bubblewrap": lambda: in_sandbox(BubblewrapCommandLineCodeExecutor, folder / "work", ports, code),
            "docker": lambda: in_sandbox(DockerCommandLineCodeExecutor, folder / "work", ports, code),
        }
        (folder / "work").mkdir()
        (folder / "work" / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
        figures = {client: defaultdict(list) for client in clients}
        for _ in range(options.rounds):
            for client, measure in clients.items():  # all in each round, because the machine's speed varies
                for cell, value in (await measure()).items():
                    figures[client][cell].append(value)
        for server in servers:
            server.kill()
    report(figures)


def report(figures):
    """Print a table."""
    medians = {
        client: {cell: statistics.median(values) for cell, values in cells.items()} for client, cells in figures.items()
    }
    cells = list(medians["direct"])
    print("| median | " + " | ".join(cells) + " |")
    print("|---" * (len(cells) + 1) + "|")
    for client, found in medians.items():
        shown = [f"{found[cell]:.1f} ({found[cell] / medians['direct'][cell]:.2f}×)" for cell in cells]
        print(f"| {client} | " + " | ".join(shown) + " |")


if __name__ == "__main__":
    asyncio.run(main())
