"""Google's Gemini API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from synapse.calibration.acts import Refuse
from synapse.calibration.asked import Asked, Body, parameters, table, tables, texts_of
from synapse.calibration.tool_calls import ToolCall
from synapse.calibration.wires.wire import server_event

_USAGE = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
_STATUSES = {400: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}
_DETAILS = "type.googleapis.com/google.rpc"


class Gemini:
    """Implements Wire for `POST /v1beta/models/X:generateContent` and `:streamGenerateContent?alt=sse`."""

    def read(self, body: Body, path: str) -> Asked:
        said, results = list[str](), list[str]()
        for content in tables(body.get("contents")):
            parts = tables(content.get("parts"))
            answers = [table(part["functionResponse"]) for part in parts if "functionResponse" in part]
            if answers:
                results += [str(answer.get("response", "")) for answer in answers]
            elif content.get("role") == "user":
                said, results = [*said, *texts_of(parts)], []
        declared = [table for tool in tables(body.get("tools")) for table in tables(tool.get("functionDeclarations"))]
        config = table(body.get("generationConfig"))
        return Asked(
            said=tuple(said),
            results=tuple(results),
            tools={str(one.get("name")): _parameters(one) for one in declared},
            structured="json" in str(config.get("responseMimeType", "")),
            streams="streamGenerateContent" in path,
        )

    def say(self, _asked: Asked, pieces: Iterator[str], _number: int, /) -> Iterator[bytes]:
        # The last piece carries the reason of the end, so each is sent when the next one is known.
        before = ""
        for piece in pieces:
            if before:
                yield server_event(_content({"text": before}))
            before = piece
        yield server_event(_content({"text": before}, "STOP"))

    def call(self, _asked: Asked, call: ToolCall, _number: int, /) -> Iterator[bytes]:
        function = {"name": call.name, "args": dict(call.arguments)}
        yield server_event(_content({"functionCall": function}, "STOP"))

    def whole(self, _asked: Asked, text: str, _number: int, /) -> dict[str, Any]:
        return _content({"text": text}, "STOP")

    def refuse(self, refusal: Refuse) -> dict[str, Any]:
        error: dict[str, Any] = {"code": refusal.status, "message": refusal.message}
        error["status"] = _STATUSES[refusal.status]
        if refusal.status == 429:
            quota = {"quotaMetric": "requests", "quotaId": "GenerateRequestsPerDayPerProject"}
            retry = {"@type": f"{_DETAILS}.RetryInfo", "retryDelay": f"{refusal.retry_after}s"}
            error["details"] = [{"@type": f"{_DETAILS}.QuotaFailure", "violations": [quota]}, retry]
        return {"error": error}


def _parameters(declaration: Body) -> frozenset[str]:
    return parameters(declaration.get("parametersJsonSchema") or declaration.get("parameters"))


def _content(part: dict[str, Any], reason: str = "") -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [part]}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    return {"candidates": [candidate], "usageMetadata": _USAGE, "modelVersion": "scripted"}
