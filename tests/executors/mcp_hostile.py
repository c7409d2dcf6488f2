"""An MCP server over stdio that keeps to no rule, for tests and nothing else; run as a program with a description as JSON.

`schema` is the schema of its tool's results, `result` the structured result, `content` the other one, and `raw` lines that come
before the answer.
"""

import json
import sys

case = json.loads(sys.argv[1])
for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if method == "initialize":
        answer = {
            "protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "hostile", "version": "1"},
        }  # fmt: skip
    elif method == "tools/list":
        tool = {"name": case.get("name", "x"), "description": case.get("description", ""), "inputSchema": {}}
        answer = {"tools": [{**tool, "outputSchema": case["schema"]} if "schema" in case else tool]}
    elif method == "tools/call":
        if case.get("dies"):
            sys.exit(3)
        for each in case.get("raw", []):
            print(each, flush=True)
        answer = {"content": case.get("content", []), "structuredContent": case.get("result")}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer}), flush=True)
