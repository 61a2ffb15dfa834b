"""An MCP server on stdio, as a person adds one to their CLI: its tools write down durably that they ran.

    tool_server.py LOG

`note` writes its text to the log. `confirm` and `fill_in` first ask the person through the CLI (an elicitation): one
for nothing but a yes, the other for a colour; they write down what the CLI answered.
"""

import json
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]

COLOUR: Json = {"type": "string", "title": "Colour", "enum": ["Blue", "Red"]}
NOTHING: Json = {"type": "object", "properties": {}}
ASKED: dict[str, Json] = {
    "confirm": {"message": "Shall it be noted?", "requestedSchema": NOTHING},
    "fill_in": {
        "message": "Which colour shall be noted?",
        "requestedSchema": {"type": "object", "properties": {"colour": COLOUR}, "required": ["colour"]},
    },
}
# No annotations: a CLI has to take the tools for dangerous.
TOOLS = [
    {
        "name": name,
        "description": "Writes a note.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    }
    for name in ("note", *ASKED)
]


def main() -> None:
    log = Path(sys.argv[1])
    for line in sys.stdin:
        message: Json = json.loads(line)
        match message:
            case {"method": "initialize", "id": asked, "params": {"protocolVersion": version}}:
                about = {"name": "notes", "version": "1"}
                answer(asked, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about})
            case {"method": "tools/list", "id": asked}:
                answer(asked, {"tools": TOOLS})
            case {"method": "tools/call", "id": asked, "params": {"name": "note", "arguments": {"text": text}}}:
                note(log, text)
                answer(asked, said("It is noted."))
            case {"method": "tools/call", "id": asked, "params": {"name": name}} if name in ASKED:
                write(
                    {"jsonrpc": "2.0", "id": f"{name}-{asked}", "method": "elicitation/create", "params": ASKED[name]}
                )
                told = json.dumps(elicited(f"{name}-{asked}"), sort_keys=True)
                note(log, told)
                answer(asked, said(told))
            case {"method": "ping", "id": asked}:
                answer(asked, {})
            case {"method": str(), "id": asked}:
                write({"jsonrpc": "2.0", "id": asked, "error": {"code": -32601, "message": "unknown method"}})
            case _:
                pass


def elicited(asked: str) -> Json:
    """Returns the CLI's answer to a question; everything before it is dropped."""
    for line in sys.stdin:
        message: Json = json.loads(line)
        if message.get("id") == asked and "method" not in message:
            told: Json = message.get("result") or message.get("error", {})
            return told
    sys.exit()


def note(log: Path, text: str) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def said(text: str) -> Json:
    return {"content": [{"type": "text", "text": text}]}


def answer(asked: object, result: Json) -> None:
    write({"jsonrpc": "2.0", "id": asked, "result": result})


def write(message: Json) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
