"""An MCP server over stdio that keeps to no rule, for tests and nothing else; run as a program with a description as JSON.

`schema` is the schema of its tool's results, `result` the structured result, `content` the other one, and `raw` lines that come
before the answer. `names` are several tools, which answer with their names.
With `dies` it ends at a call, with `waits` it answers none and writes what else it gets into that file, and
with `pages` its list of tools has no end.
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
        tool = {"description": case.get("description", ""), "inputSchema": {"type": "object"}}
        tool |= {"outputSchema": case["schema"]} if "schema" in case else {}
        answer = {"tools": [{**tool, "name": name} for name in case.get("names", [case.get("name", "x")])]}
        answer |= {"nextCursor": "again"} if "pages" in case else {}
    elif method == "tools/call":
        if case.get("dies"):
            sys.exit("no more")
        if "waits" in case:
            continue
        for each in case.get("raw", []):
            print(each, flush=True)
        content = case.get("content") or [{"type": "text", "text": request["params"]["name"]}] * ("names" in case)
        answer = {"content": content, "structuredContent": case.get("result")}
    else:
        if "waits" in case:
            with open(case["waits"], "a") as file:
                file.write(f"{method}\n")
        if method == "server/discover":  # else mcp 2 waits for 10 s
            error = {"code": -32601, "message": "unknown"}
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer}), flush=True)
