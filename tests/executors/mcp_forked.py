"""Has the fork server start the MCP server of the tests, which would import for half a second; run as a program.

Its arguments are the fork server's address, without the null byte at its beginning, and the arguments of the MCP server. It ends
with its exit status.
"""

import json
import os
import socket
import sys

if __name__ == "__main__":
    address, *arguments = sys.argv[1:]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection, theirs:
        connection.connect(f"\0{address}")
        program = os.path.join(os.path.dirname(__file__), "mcp_server.py")
        request = {
            "arguments": [program, *arguments],
            "environment": dict(os.environ),
            "folder": os.getcwd(),
            "warnings": [],
        }
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2, theirs.fileno()])
    ours.recv(64)  # the number of its process
    sys.exit(int(ours.recv(64)))
