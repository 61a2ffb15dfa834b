"""A line program that keeps its session as Copilot does, and tells there what each of its turns cost."""

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

if "--help" in sys.argv:
    sys.stdout.write("  --session-id <id>\n")
    sys.exit()

session = sys.argv[sys.argv.index("--session-id") + 1]
events = Path(os.environ["HOME"], ".copilot", "session-state", session, "events.jsonl")
events.parent.mkdir(parents=True)
numbers = iter(range(1, 1000))


def tell(kind: str, **data: object) -> None:
    """Adds an event to the session."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    with events.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"type": kind, "data": data, "id": f"e{next(numbers)}", "timestamp": at}) + "\n")


while True:
    sys.stdout.write("> ")
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        break
    turn = f"turn-{next(numbers)}"
    counts = {"inputTokens": 1102, "outputTokens": 21, "cacheReadTokens": 1001, "cacheWriteTokens": 0}
    usage = {**counts, "reasoningTokens": 7, "model": "m1", "accounting": {"sourceSessionId": session}}
    tell("user.message", content=line.strip(), interactionId=turn)
    tell("session.usage_record", usage=usage)
    tell("assistant.message", content="spent", toolRequests=[])
    tell("assistant.turn_end")
    sys.stdout.write("spent\n")
