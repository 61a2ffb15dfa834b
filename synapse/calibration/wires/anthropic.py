"""Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from synapse.calibration.acts import Refuse
from synapse.calibration.asked import Asked, Body, parameters, table, tables, text_of, texts_of
from synapse.calibration.tool_calls import ToolCall
from synapse.calibration.wires.wire import server_event

_USAGE = {"input_tokens": 10, "output_tokens": 5}
_ERRORS = {400: "invalid_request_error", 429: "rate_limit_error", 500: "api_error"}


class Anthropic:
    """Implements Wire for `POST /v1/messages`."""

    def read(self, body: Body, _path: str, /) -> Asked:
        said, results = list[str](), list[str]()
        for message in tables(body.get("messages")):
            if message.get("role") != "user":
                continue
            parts = tables(message.get("content"))
            answers = [text_of(part.get("content")) for part in parts if part.get("type") == "tool_result"]
            texts = [str(message["content"])] if isinstance(message.get("content"), str) else texts_of(parts)
            if answers:
                results += answers
            elif texts:
                said, results = [*said, *texts], []
        return Asked(
            said=tuple(said),
            results=tuple(results),
            tools={str(tool.get("name")): parameters(tool.get("input_schema")) for tool in tables(body.get("tools"))},
            structured=bool(table(body.get("output_config")).get("format")),
            streams=body.get("stream") is True,
            model=str(body.get("model", "")),
        )

    def say(self, asked: Asked, pieces: Iterator[str], number: int) -> Iterator[bytes]:
        yield self._start(asked, number)
        yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        for piece in pieces:
            yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        yield from _end("end_turn")

    def call(self, asked: Asked, call: ToolCall, number: int) -> Iterator[bytes]:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": call.name, "input": dict[str, str]()}
        arguments = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
        yield self._start(asked, number)
        yield _event("content_block_start", index=0, content_block=block)
        yield _event("content_block_delta", index=0, delta=arguments)
        yield from _end("tool_use")

    def whole(self, asked: Asked, text: str, number: int) -> dict[str, Any]:
        return {**_message(asked, number), "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}

    def refuse(self, refusal: Refuse) -> dict[str, Any]:
        return {"type": "error", "error": {"type": _ERRORS[refusal.status], "message": refusal.message}}

    def _start(self, asked: Asked, number: int) -> bytes:
        return _event("message_start", message=_message(asked, number))


def _message(asked: Asked, number: int) -> dict[str, Any]:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": asked.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _USAGE,
    }


def _end(reason: str) -> Iterator[bytes]:
    yield _event("content_block_stop", index=0)
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield _event("message_delta", delta=delta, usage={"output_tokens": 5})
    yield _event("message_stop")


def _event(name: str, **fields: Any) -> bytes:
    return server_event({"type": name, **fields}, name)
