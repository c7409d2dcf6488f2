"""Code uses the key of an API without seeing it; the API is a server of this program."""

import os
import socket
import tempfile
import threading

from codeact_sandbox import Sandbox, Secret
from codeact_sandbox.network.authority import Authority

HOST = "127.0.0.2"  # of this machine; code connects to 127.0.0.1 without the proxy
CODE = """
import os, urllib.request

headers = {"Authorization": "Bearer " + os.environ["API_KEY"]}
print("The code sends ", headers["Authorization"][:18] + "...")
with urllib.request.urlopen(urllib.request.Request(URL, headers=headers)) as answer:
    print("The code gets  ", answer.read().decode())
"""


def serve(listener: socket.socket, authority: Authority) -> None:
    """Answer one request with the key that came with it."""
    sock, _ = listener.accept()
    with authority.context(HOST).wrap_socket(sock, server_side=True) as connection:
        request = connection.recv(65536).decode()
        key = next(line for line in request.split("\r\n") if line.startswith("Authorization: "))
        print("The server gets", key)
        body = f"you sent {key}".encode()
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def main() -> None:
    """Start the server, and run the code."""
    authority = Authority()
    listener = socket.create_server((HOST, 0))
    listener.settimeout(60)
    port = listener.getsockname()[1]
    server = threading.Thread(target=serve, args=(listener, authority))
    server.start()
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as trusted:
        trusted.write(authority.pem)
        trusted.flush()
        os.environ["SSL_CERT_FILE"] = trusted.name  # this process trusts the server: public ones need nothing
        os.environ["MY_KEY"] = "sk-0123456789"
        secrets = {"API_KEY": Secret(env="MY_KEY", hosts=[f"{HOST}:{port}"])}
        with Sandbox(secrets=secrets) as box:
            result = box.run(f"URL = 'https://{HOST}:{port}/'\n{CODE}")
    server.join(10)
    listener.close()
    print(result.output, end="")


if __name__ == "__main__":
    main()
