"""An MCP server over standard input and output whose tools work, die and hang as tests need it.

Every call is written down in `ledger.txt`: the tool, the idempotency key it came with, and what it was given.
"""

import json
import os
import sys
import time


def tool(name, description, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "inputSchema": schema}


TOOLS = [
    tool("read", "Reads a note."),
    tool("write", "Writes a note.", text={"type": "string"}),
    tool("walk", "Takes its time and says how far it is."),
    tool("die", "Ends the server the first time it is called.", text={"type": "string"}),
    tool("hang", "Does not come back before there is a file `go`."),
]


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def until_there_is(path):
    for _ in range(3000):
        if os.path.exists(path):
            return
        time.sleep(0.02)


def call(name, arguments, meta):
    before = os.path.exists("ledger.txt") and name + " " in open("ledger.txt").read()
    with open("ledger.txt", "a") as ledger:
        key = meta.get("rekindle/idempotencyKey")
        ledger.write("%s %s %s\n" % (name, key, arguments.get("text", "")))
    if name == "walk":
        for step in (1, 2, 3):
            progress = {"progressToken": meta["progressToken"], "progress": step, "total": 3, "message": "step %d" % step}
            send({"method": "notifications/progress", "params": progress})
    if name == "die" and not before:
        print("the disk is on fire", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "hang":
        until_there_is("go")
    return "%s is done" % name


print("notes are served", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    params, result = message.get("params") or {}, {}
    if message["method"] == "initialize":
        info = {"name": "notes", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        result = {"tools": TOOLS}
    elif message["method"] == "tools/call":
        text = call(params["name"], params.get("arguments") or {}, params.get("_meta") or {})
        result = {"content": [{"type": "text", "text": text}]}
    send({"id": message["id"], "result": result})
