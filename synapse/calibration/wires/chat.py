"""OpenAI's Chat Completions API, which many others speak too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from synapse.calibration.acts import Refuse
from synapse.calibration.asked import Asked, Body, parameters, table, tables, text_of
from synapse.calibration.tool_calls import ToolCall
from synapse.calibration.wires.wire import server_event

_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
_DONE = b"data: [DONE]\n\n"


class Chat:
    """Implements Wire for `POST /v1/chat/completions`."""

    def read(self, body: Body, _path: str, /) -> Asked:
        said, results = list[str](), list[str]()
        for message in tables(body.get("messages")):
            if message.get("role") == "tool":
                results.append(text_of(message.get("content")))
            elif message.get("role") == "user":
                said, results = [*said, text_of(message.get("content"))], []
        functions = [table(tool.get("function")) for tool in tables(body.get("tools"))]
        return Asked(
            said=tuple(said),
            results=tuple(results),
            tools={str(function.get("name")): parameters(function.get("parameters")) for function in functions},
            structured=bool(body.get("response_format")),
            streams=body.get("stream") is True,
            model=str(body.get("model", "")),
        )

    def say(self, asked: Asked, pieces: Iterator[str], number: int) -> Iterator[bytes]:
        yield _chunk(asked, number, {"role": "assistant", "content": ""})
        for piece in pieces:
            yield _chunk(asked, number, {"content": piece})
        yield _last(asked, number, "stop")
        yield _DONE

    def call(self, asked: Asked, call: ToolCall, number: int) -> Iterator[bytes]:
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        calls = [{"index": 0, "id": f"call_{number}", "type": "function", "function": function}]
        yield _chunk(asked, number, {"role": "assistant", "content": None, "tool_calls": calls})
        yield _last(asked, number, "tool_calls")
        yield _DONE

    def whole(self, asked: Asked, text: str, number: int) -> dict[str, Any]:
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        return {**_head(asked, number), "object": "chat.completion", "choices": [choice], "usage": _USAGE}

    def refuse(self, refusal: Refuse) -> dict[str, Any]:
        kind = "rate_limit_exceeded" if refusal.status == 429 else "invalid_request_error"
        return {"error": {"message": refusal.message, "type": kind, "code": kind}}


def _head(asked: Asked, number: int) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "created": number, "model": asked.model}


def _chunk(asked: Asked, number: int, delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return server_event({**_head(asked, number), "object": "chat.completion.chunk", "choices": [choice], **more})


def _last(asked: Asked, number: int, reason: str) -> bytes:
    return _chunk(asked, number, {}, reason, usage=_USAGE)
