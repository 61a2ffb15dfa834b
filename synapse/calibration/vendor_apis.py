"""The model APIs of four vendors: each reads a request, and encodes an answer as a stream or as a whole.

Anthropic's Messages, OpenAI's Chat Completions (which many other vendors use) and Responses, and Google's Gemini.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol

from synapse.calibration.scripted_model import (
    Body,
    ModelRequest,
    Refuse,
    ToolCall,
    parameters,
    table,
    tables,
    text_of,
    texts_of,
)
from synapse.core.usage import TokenCounts

_ANTHROPIC_ERRORS = {400: "invalid_request_error", 429: "rate_limit_error", 500: "api_error"}
_CHAT_DONE = b"data: [DONE]\n\n"
_GEMINI_STATUSES = {400: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}
_GEMINI_DETAILS = "type.googleapis.com/google.rpc"


class VendorApi(Protocol):
    """One vendor's API. `number` makes the ids of an answer unique, and its token counts too."""

    def usage(self, number: int, /) -> TokenCounts:
        """Returns the token counts that the answer with this number tells."""
        ...

    def read(self, body: Body, path: str, /) -> ModelRequest: ...

    def say(self, request: ModelRequest, pieces: Iterator[str], number: int, /) -> Iterator[bytes]:
        """Yields the events of a streamed text; takes each piece after the one before it was sent."""
        ...

    def call(self, request: ModelRequest, call: ToolCall, number: int, /) -> Iterator[bytes]:
        """Yields the events of a streamed tool call."""
        ...

    def whole(self, request: ModelRequest, text: str, number: int, /) -> dict[str, Any]:
        """Returns an answer that is not streamed."""
        ...

    def refuse(self, refusal: Refuse, /) -> dict[str, Any]:
        """Returns the body of an error."""
        ...


def server_event(data: dict[str, Any], name: str = "") -> bytes:
    """Returns one server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


def scripted_usage(number: int) -> TokenCounts:
    """Returns the token counts of the answer with this number: no two answers have the same."""
    return TokenCounts(
        input=100 + number, output=20 + number, cache_read=1000 + number, cache_write=300 + number, reasoning=7
    )


class Anthropic:
    """Implements VendorApi for `POST /v1/messages`."""

    def usage(self, number: int) -> TokenCounts:
        return replace(scripted_usage(number), reasoning=0)

    def read(self, body: Body, _path: str, /) -> ModelRequest:
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
        return ModelRequest(
            said=tuple(said),
            results=tuple(results),
            tools={str(tool.get("name")): parameters(tool.get("input_schema")) for tool in tables(body.get("tools"))},
            structured=bool(table(body.get("output_config")).get("format")),
            streams=body.get("stream") is True,
            model=str(body.get("model", "")),
        )

    def say(self, request: ModelRequest, pieces: Iterator[str], number: int) -> Iterator[bytes]:
        yield self._start(request, number)
        yield _anthropic_event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        for piece in pieces:
            yield _anthropic_event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        yield from _anthropic_end("end_turn", number)

    def call(self, request: ModelRequest, call: ToolCall, number: int) -> Iterator[bytes]:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": call.name, "input": dict[str, str]()}
        arguments = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
        yield self._start(request, number)
        yield _anthropic_event("content_block_start", index=0, content_block=block)
        yield _anthropic_event("content_block_delta", index=0, delta=arguments)
        yield from _anthropic_end("tool_use", number)

    def whole(self, request: ModelRequest, text: str, number: int) -> dict[str, Any]:
        return {
            **_anthropic_message(request, number),
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
        }

    def refuse(self, refusal: Refuse) -> dict[str, Any]:
        return {"type": "error", "error": {"type": _ANTHROPIC_ERRORS[refusal.status], "message": refusal.message}}

    def _start(self, request: ModelRequest, number: int) -> bytes:
        return _anthropic_event("message_start", message=_anthropic_message(request, number))


def _anthropic_message(request: ModelRequest, number: int) -> dict[str, Any]:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _anthropic_usage(number),
    }


def _anthropic_usage(number: int) -> dict[str, Any]:
    tokens = Anthropic().usage(number)
    return {
        "input_tokens": tokens.input,
        "cache_read_input_tokens": tokens.cache_read,
        "cache_creation_input_tokens": tokens.cache_write,
        "output_tokens": tokens.output,
    }


def _anthropic_end(reason: str, number: int) -> Iterator[bytes]:
    yield _anthropic_event("content_block_stop", index=0)
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield _anthropic_event("message_delta", delta=delta, usage=_anthropic_usage(number))
    yield _anthropic_event("message_stop")


def _anthropic_event(name: str, **fields: Any) -> bytes:
    return server_event({"type": name, **fields}, name)


class Chat:
    """Implements VendorApi for `POST /v1/chat/completions`."""

    def usage(self, number: int) -> TokenCounts:
        return replace(scripted_usage(number), cache_write=0)

    def read(self, body: Body, _path: str, /) -> ModelRequest:
        said, results = list[str](), list[str]()
        for message in tables(body.get("messages")):
            if message.get("role") == "tool":
                results.append(text_of(message.get("content")))
            elif message.get("role") == "user":
                said, results = [*said, text_of(message.get("content"))], []
        functions = [table(tool.get("function")) for tool in tables(body.get("tools"))]
        return ModelRequest(
            said=tuple(said),
            results=tuple(results),
            tools={str(function.get("name")): parameters(function.get("parameters")) for function in functions},
            structured=bool(body.get("response_format")),
            streams=body.get("stream") is True,
            model=str(body.get("model", "")),
        )

    def say(self, request: ModelRequest, pieces: Iterator[str], number: int) -> Iterator[bytes]:
        yield _chat_chunk(request, number, {"role": "assistant", "content": ""})
        for piece in pieces:
            yield _chat_chunk(request, number, {"content": piece})
        yield _chat_last(request, number, "stop")
        yield _CHAT_DONE

    def call(self, request: ModelRequest, call: ToolCall, number: int) -> Iterator[bytes]:
        function = {"name": call.name, "arguments": json.dumps(call.arguments)}
        calls = [{"index": 0, "id": f"call_{number}", "type": "function", "function": function}]
        yield _chat_chunk(request, number, {"role": "assistant", "content": None, "tool_calls": calls})
        yield _chat_last(request, number, "tool_calls")
        yield _CHAT_DONE

    def whole(self, request: ModelRequest, text: str, number: int) -> dict[str, Any]:
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        return {
            **_chat_head(request, number),
            "object": "chat.completion",
            "choices": [choice],
            "usage": _chat_usage(number),
        }

    def refuse(self, refusal: Refuse) -> dict[str, Any]:
        kind = "rate_limit_exceeded" if refusal.status == 429 else "invalid_request_error"
        return {"error": {"message": refusal.message, "type": kind, "code": kind}}


def _chat_head(request: ModelRequest, number: int) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "created": number, "model": request.model}


def _chat_usage(number: int) -> dict[str, Any]:
    tokens = Chat().usage(number)
    asked = tokens.input + tokens.cache_read
    return {
        "prompt_tokens": asked,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read},
        "completion_tokens": tokens.output,
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": asked + tokens.output,
    }


def _chat_chunk(
    request: ModelRequest, number: int, delta: dict[str, Any], reason: str | None = None, **more: Any
) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return server_event({**_chat_head(request, number), "object": "chat.completion.chunk", "choices": [choice], **more})


def _chat_last(request: ModelRequest, number: int, reason: str) -> bytes:
    return _chat_chunk(request, number, {}, reason, usage=_chat_usage(number))


class Gemini:
    """Implements VendorApi for `POST /v1beta/models/X:generateContent` and `:streamGenerateContent?alt=sse`."""

    def usage(self, number: int) -> TokenCounts:
        return replace(scripted_usage(number), cache_write=0)

    def read(self, body: Body, path: str) -> ModelRequest:
        said, results = list[str](), list[str]()
        for content in tables(body.get("contents")):
            parts = tables(content.get("parts"))
            answers = [table(part["functionResponse"]) for part in parts if "functionResponse" in part]
            if answers:
                results += [_gemini_result(answer.get("response")) for answer in answers]
            elif content.get("role") == "user":
                said, results = [*said, *texts_of(parts)], []
        declared = [table for tool in tables(body.get("tools")) for table in tables(tool.get("functionDeclarations"))]
        config = table(body.get("generationConfig"))
        return ModelRequest(
            said=tuple(said),
            results=tuple(results),
            tools={
                str(one.get("name")): parameters(one.get("parametersJsonSchema") or one.get("parameters"))
                for one in declared
            },
            structured="json" in str(config.get("responseMimeType", "")),
            streams="streamGenerateContent" in path,
        )

    def say(self, _request: ModelRequest, pieces: Iterator[str], number: int, /) -> Iterator[bytes]:
        # The last piece carries the finish reason, so each piece is sent when the next one is known.
        before = ""
        for piece in pieces:
            if before:
                yield server_event(_gemini_content({"text": before}, number))
            before = piece
        yield server_event(_gemini_content({"text": before}, number, "STOP"))

    def call(self, _request: ModelRequest, call: ToolCall, number: int, /) -> Iterator[bytes]:
        function = {"name": call.name, "args": dict(call.arguments)}
        yield server_event(_gemini_content({"functionCall": function}, number, "STOP"))

    def whole(self, _request: ModelRequest, text: str, number: int, /) -> dict[str, Any]:
        return _gemini_content({"text": text}, number, "STOP")

    def refuse(self, refusal: Refuse) -> dict[str, Any]:
        error: dict[str, Any] = {"code": refusal.status, "message": refusal.message}
        error["status"] = _GEMINI_STATUSES[refusal.status]
        if refusal.status == 429:
            quota = {"quotaMetric": "requests", "quotaId": "GenerateRequestsPerDayPerProject"}
            retry = {"@type": f"{_GEMINI_DETAILS}.RetryInfo", "retryDelay": f"{refusal.retry_after}s"}
            error["details"] = [{"@type": f"{_GEMINI_DETAILS}.QuotaFailure", "violations": [quota]}, retry]
        return {"error": error}


def _gemini_result(response: object) -> str:
    """Returns the text of a tool's result; one of another shape as JSON."""
    output = table(response).get("output")
    return output if isinstance(output, str) else json.dumps(response, ensure_ascii=False)


def _gemini_usage(number: int) -> dict[str, Any]:
    tokens = Gemini().usage(number)
    asked = tokens.input + tokens.cache_read
    return {
        "promptTokenCount": asked,
        "cachedContentTokenCount": tokens.cache_read,
        "candidatesTokenCount": tokens.output - tokens.reasoning,
        "thoughtsTokenCount": tokens.reasoning,
        "totalTokenCount": asked + tokens.output,
    }


def _gemini_content(part: dict[str, Any], number: int, reason: str = "") -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": [part]}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    return {"candidates": [candidate], "usageMetadata": _gemini_usage(number), "modelVersion": "scripted"}


class Responses:
    """Implements VendorApi for `POST /v1/responses`."""

    def usage(self, number: int) -> TokenCounts:
        return replace(scripted_usage(number), cache_write=0)

    def read(self, body: Body, _path: str, /) -> ModelRequest:
        said, results = list[str](), list[str]()
        given = body.get("input")
        for item in tables(given) or [{"role": "user", "content": given}]:
            if str(item.get("type", "")).endswith("_output"):
                results.append(text_of(item.get("output")))
            elif item.get("role") == "user":
                said, results = [*said, text_of(item.get("content"))], []
        offered = tables(body.get("tools"))
        tools = [tool for tool in offered if tool.get("type") != "namespace"]
        inner = {
            (str(space.get("name")), str(tool.get("name"))): parameters(tool.get("parameters"))
            for space in offered
            if space not in tools
            for tool in tables(space.get("tools"))
        }
        own = {str(tool.get("name", tool.get("type"))): parameters(tool.get("parameters")) for tool in tools}
        return ModelRequest(
            said=tuple(said),
            results=tuple(results),
            tools=own | {"__".join(place): taken for place, taken in inner.items()},
            namespaces={"__".join(place): place for place in inner},
            freeform=frozenset(str(tool.get("name")) for tool in tools if tool.get("type") == "custom"),
            structured=bool(table(body.get("text")).get("format")),
            streams=body.get("stream") is True,
            model=str(body.get("model", "")),
        )

    def say(self, request: ModelRequest, pieces: Iterator[str], number: int) -> Iterator[bytes]:
        said, place = "", {"item_id": f"msg_{number}", "output_index": 0, "content_index": 0}
        events = _ResponsesEvents()
        yield events("response.created", response=_responses_object(request, number, []))
        started = {**_responses_text("", number), "content": list[str](), "status": "in_progress"}
        yield events("response.output_item.added", output_index=0, item=started)
        part = {"type": "output_text", "text": "", "annotations": list[str]()}
        yield events("response.content_part.added", **place, part=part)
        for piece in pieces:
            said += piece
            yield events("response.output_text.delta", **place, delta=piece)
        yield events("response.output_text.done", **place, text=said)
        yield from _responses_end(events, request, _responses_text(said, number), number)

    def call(self, request: ModelRequest, call: ToolCall, number: int) -> Iterator[bytes]:
        item = {"id": f"fc_{number}", "call_id": f"call_{number}", "name": call.name}
        if call.name in request.freeform:
            item |= {"type": "custom_tool_call", "input": str(call.arguments.get("input", ""))}
        else:
            item |= {"type": "function_call", "arguments": json.dumps(call.arguments)}
        if call.name in request.namespaces:
            item["namespace"], item["name"] = request.namespaces[call.name]
        events = _ResponsesEvents()
        yield events("response.created", response=_responses_object(request, number, []))
        yield events("response.output_item.added", output_index=0, item=item)
        yield from _responses_end(events, request, item, number)

    def whole(self, request: ModelRequest, text: str, number: int) -> dict[str, Any]:
        return {**_responses_object(request, number, [_responses_text(text, number)]), "status": "completed"}

    def refuse(self, refusal: Refuse) -> dict[str, Any]:
        kind = "usage_limit_reached" if refusal.status == 429 else "invalid_request_error"
        error: dict[str, Any] = {"message": refusal.message, "type": kind, "code": None}
        if refusal.retry_after:
            error["resets_in_seconds"] = refusal.retry_after
        return {"error": error}


class _ResponsesEvents:
    """Numbers the events of one answer."""

    def __init__(self) -> None:
        self._sent = 0

    def __call__(self, name: str, **fields: Any) -> bytes:
        event = server_event({"type": name, "sequence_number": self._sent, **fields}, name)
        self._sent += 1
        return event


def _responses_end(
    events: _ResponsesEvents, request: ModelRequest, item: dict[str, Any], number: int
) -> Iterator[bytes]:
    yield events("response.output_item.done", output_index=0, item=item)
    yield events("response.completed", response={**_responses_object(request, number, [item]), "status": "completed"})


def _responses_object(request: ModelRequest, number: int, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"resp_{number}",
        "object": "response",
        "status": "in_progress",
        "model": request.model,
        "output": output,
        "usage": _responses_usage(number),
    }


def _responses_usage(number: int) -> dict[str, Any]:
    tokens = Responses().usage(number)
    asked = tokens.input + tokens.cache_read
    return {
        "input_tokens": asked,
        "input_tokens_details": {"cached_tokens": tokens.cache_read},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": asked + tokens.output,
    }


def _responses_text(text: str, number: int) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": list[str]()}]
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": content}
