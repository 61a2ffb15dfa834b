"""OpenAI's Responses API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from synapse.calibration.acts import Refuse
from synapse.calibration.asked import Asked, Body, parameters, table, tables, text_of
from synapse.calibration.tool_calls import ToolCall
from synapse.calibration.wires.wire import server_event

_USAGE = {
    "input_tokens": 10,
    "output_tokens": 5,
    "total_tokens": 15,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}


class Responses:
    """Implements Wire for `POST /v1/responses`."""

    def read(self, body: Body, _path: str, /) -> Asked:
        said, results = list[str](), list[str]()
        given = body.get("input")
        for item in tables(given) or [{"role": "user", "content": given}]:
            if str(item.get("type", "")).endswith("_output"):
                results.append(text_of(item.get("output")))
            elif item.get("role") == "user":
                said, results = [*said, text_of(item.get("content"))], []
        tools = tables(body.get("tools"))
        return Asked(
            said=tuple(said),
            results=tuple(results),
            tools={str(tool.get("name", tool.get("type"))): parameters(tool.get("parameters")) for tool in tools},
            freeform=frozenset(str(tool.get("name")) for tool in tools if tool.get("type") == "custom"),
            structured=bool(table(body.get("text")).get("format")),
            streams=body.get("stream") is True,
            model=str(body.get("model", "")),
        )

    def say(self, asked: Asked, pieces: Iterator[str], number: int) -> Iterator[bytes]:
        said, place = "", {"item_id": f"msg_{number}", "output_index": 0, "content_index": 0}
        events = _Events()
        yield events("response.created", response=_response(asked, number, []))
        started = {**_text_item("", number), "content": list[str](), "status": "in_progress"}
        yield events("response.output_item.added", output_index=0, item=started)
        part = {"type": "output_text", "text": "", "annotations": list[str]()}
        yield events("response.content_part.added", **place, part=part)
        for piece in pieces:
            said += piece
            yield events("response.output_text.delta", **place, delta=piece)
        yield events("response.output_text.done", **place, text=said)
        yield from _end(events, asked, _text_item(said, number), number)

    def call(self, asked: Asked, call: ToolCall, number: int) -> Iterator[bytes]:
        item = {"id": f"fc_{number}", "call_id": f"call_{number}", "name": call.name}
        if call.name in asked.freeform:
            item |= {"type": "custom_tool_call", "input": str(call.arguments.get("input", ""))}
        else:
            item |= {"type": "function_call", "arguments": json.dumps(call.arguments)}
        events = _Events()
        yield events("response.created", response=_response(asked, number, []))
        yield events("response.output_item.added", output_index=0, item=item)
        yield from _end(events, asked, item, number)

    def whole(self, asked: Asked, text: str, number: int) -> dict[str, Any]:
        return {**_response(asked, number, [_text_item(text, number)]), "status": "completed"}

    def refuse(self, refusal: Refuse) -> dict[str, Any]:
        kind = "usage_limit_reached" if refusal.status == 429 else "invalid_request_error"
        told: dict[str, Any] = {"message": refusal.message, "type": kind, "code": None}
        if refusal.retry_after:
            told["resets_in_seconds"] = refusal.retry_after
        return {"error": told}


class _Events:
    """Numbers the events of one answer."""

    def __init__(self) -> None:
        self._sent = 0

    def __call__(self, name: str, **fields: Any) -> bytes:
        event = server_event({"type": name, "sequence_number": self._sent, **fields}, name)
        self._sent += 1
        return event


def _end(events: _Events, asked: Asked, item: dict[str, Any], number: int) -> Iterator[bytes]:
    yield events("response.output_item.done", output_index=0, item=item)
    yield events("response.completed", response={**_response(asked, number, [item]), "status": "completed"})


def _response(asked: Asked, number: int, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"resp_{number}",
        "object": "response",
        "status": "in_progress",
        "model": asked.model,
        "output": output,
        "usage": _USAGE,
    }


def _text_item(text: str, number: int) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": list[str]()}]
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": content}
