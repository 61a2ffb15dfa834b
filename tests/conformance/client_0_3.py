"""A conversation by the official SDK of A2A 0.3, in an environment of its own.

    python client_0_3.py URL JSONRPC|HTTP+JSON|GRPC streaming|plain script|dummy

It prints what it saw as JSON. The SDK is loaded by name, because the one that is installed here is another version.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import uuid
from typing import Any
from urllib.parse import urlsplit

client: Any = importlib.import_module("a2a.client")
types: Any = importlib.import_module("a2a.types")
httpx: Any = importlib.import_module("httpx")

PATIENCE = 30.0


def message(text: str, cue: str = "plain", **more: str) -> Any:
    parts = [types.Part(types.TextPart(text=text))]
    return types.Message(message_id=f"{cue}-{uuid.uuid4()}", role=types.Role.user, parts=parts, **more)


def kind(event: Any) -> str:
    if isinstance(event, types.Message):
        return "message"
    return event[1].kind if event[1] is not None else "task"


async def events(stream: Any) -> list[Any]:
    return [event async for event in stream]


async def refused(act: Any) -> str:
    try:
        await act
    except Exception as error:  # noqa: BLE001 - which class it is depends on the transport
        return str(error)
    return ""


async def script(speaker: Any) -> dict[str, Any]:
    """Talks with the agent of docs/examples/conformance.toml."""
    asked = (await events(speaker.send_message(message("first", "tck-multi-turn"))))[-1][0]
    await events(speaker.send_message(message("second", task_id=asked.id, context_id=asked.context_id)))
    done = await speaker.get_task(types.TaskQueryParams(id=asked.id))
    streamed = await events(speaker.send_message(message("go", "tck-stream-artifact-chunked")))
    direct = await events(speaker.send_message(message("hi", "tck-message-response")))
    return {
        "asked": [asked.status.state.value, asked.status.message.parts[0].root.text],
        "done": [done.status.state.value, done.artifacts[0].parts[0].root.text],
        "history": [one.parts[0].root.text for one in done.history],
        "kinds": [kind(event) for event in streamed],
        "direct": direct[0].parts[0].root.text,
        "unknown": await refused(speaker.get_task(types.TaskQueryParams(id="no-such-task"))),
        "finished": await refused(events(speaker.send_message(message("more", task_id=done.id)))),
        "not cancelable": await refused(speaker.cancel_task(types.TaskIdParams(id=done.id))),
    }


async def dummy(speaker: Any) -> dict[str, Any]:
    """Talks with the built-in agent."""
    task = (await events(speaker.send_message(message("hello there"))))[-1][0]
    return {"state": task.status.state.value, "text": task.artifacts[-1].parts[0].root.text}


def new_channel(url: str) -> Any:
    """Cards of 0.3 have an absolute address; a channel of Python takes host and port."""
    return importlib.import_module("grpc.aio").insecure_channel(urlsplit(url).netloc)


async def main(url: str, transport: str, mode: str, agent: str) -> None:
    async with httpx.AsyncClient(timeout=PATIENCE) as http, asyncio.timeout(PATIENCE):
        card = await client.A2ACardResolver(http, url).get_agent_card()
        config = client.ClientConfig(
            httpx_client=http,
            streaming=mode == "streaming",
            supported_transports=[transport],
            grpc_channel_factory=new_channel if transport == "GRPC" else None,
        )
        speaker = client.ClientFactory(config).create(card)
        seen = await (script if agent == "script" else dummy)(speaker)
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
