"""How a CLI speaks with each vendor's API: requests as CLIs write them, and streams as they read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from synapse.calibration.vendor_apis import Anthropic, Chat, Gemini, Responses, VendorApi
from synapse.client.events import EventDecoder

Json = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}


@dataclass(frozen=True)
class Vendor:
    """One API, from the CLI's side. A message is a person's text, or the result of a tool."""

    name: str
    api: VendorApi
    path: str
    prompt: Callable[[str], Json]
    result: Callable[[str], Json]
    request: Callable[[list[Json]], Json]
    structured: Json
    text_in: Callable[[list[Json]], str]
    call_in: Callable[[list[Json]], tuple[str, Json]]
    whole_text: Callable[[Json], str]


def events(frames: list[bytes]) -> list[Json]:
    """Returns the JSON of each event of a stream."""
    streamed = EventDecoder().receive(b"".join(frames))
    return [json.loads(event.data) for event in streamed if event.data != "[DONE]"]


def _anthropic_call(streamed: list[Json]) -> tuple[str, Json]:
    block = next(event["content_block"] for event in streamed if event["type"] == "content_block_start")
    parts = [event["delta"]["partial_json"] for event in streamed if event["type"] == "content_block_delta"]
    return block["name"], json.loads("".join(parts))


def _responses_call(streamed: list[Json]) -> tuple[str, Json]:
    item = streamed[-1]["response"]["output"][0]
    return item["name"], json.loads(item["arguments"])


def _chat_call(streamed: list[Json]) -> tuple[str, Json]:
    function = streamed[0]["choices"][0]["delta"]["tool_calls"][0]["function"]
    return function["name"], json.loads(function["arguments"])


def _gemini_part(event: Json) -> Json:
    part: Json = event["candidates"][0]["content"]["parts"][0]
    return part


def _gemini_call(streamed: list[Json]) -> tuple[str, Json]:
    call = _gemini_part(streamed[-1])["functionCall"]
    return call["name"], call["args"]


ANTHROPIC = Vendor(
    name="anthropic",
    api=Anthropic(),
    path="/v1/messages",
    prompt=lambda text: {"role": "user", "content": [{"type": "text", "text": text}]},
    result=lambda text: {"role": "user", "content": [{"type": "tool_result", "content": text}]},
    request=lambda messages: {
        "model": "m",
        "stream": True,
        "messages": messages,
        "tools": [{"name": "Bash", "input_schema": SCHEMA}],
    },
    structured={"output_config": {"format": {"type": "json_schema"}}},
    text_in=lambda streamed: "".join(
        event["delta"]["text"] for event in streamed if event["type"] == "content_block_delta"
    ),
    call_in=_anthropic_call,
    whole_text=lambda body: body["content"][0]["text"],
)
RESPONSES = Vendor(
    name="responses",
    api=Responses(),
    path="/v1/responses",
    prompt=lambda text: {"role": "user", "content": [{"type": "input_text", "text": text}]},
    result=lambda text: {"type": "function_call_output", "output": text},
    request=lambda messages: {
        "model": "m",
        "stream": True,
        "input": messages,
        "tools": [{"type": "function", "name": "Bash", "parameters": SCHEMA}],
    },
    structured={"text": {"format": {"type": "json_schema"}}},
    text_in=lambda streamed: streamed[-1]["response"]["output"][0]["content"][0]["text"],
    call_in=_responses_call,
    whole_text=lambda body: body["output"][0]["content"][0]["text"],
)
CHAT = Vendor(
    name="chat",
    api=Chat(),
    path="/v1/chat/completions",
    prompt=lambda text: {"role": "user", "content": text},
    result=lambda text: {"role": "tool", "content": text},
    request=lambda messages: {
        "model": "m",
        "stream": True,
        "messages": messages,
        "tools": [{"type": "function", "function": {"name": "Bash", "parameters": SCHEMA}}],
    },
    structured={"response_format": {"type": "json_schema"}},
    text_in=lambda streamed: "".join(event["choices"][0]["delta"].get("content") or "" for event in streamed),
    call_in=_chat_call,
    whole_text=lambda body: body["choices"][0]["message"]["content"],
)
GEMINI = Vendor(
    name="gemini",
    api=Gemini(),
    path="/v1beta/models/m:streamGenerateContent",
    prompt=lambda text: {"role": "user", "parts": [{"text": text}]},
    result=lambda text: {"role": "user", "parts": [{"functionResponse": {"response": {"output": text}}}]},
    request=lambda messages: {
        "contents": messages,
        "tools": [{"functionDeclarations": [{"name": "Bash", "parametersJsonSchema": SCHEMA}]}],
    },
    structured={"generationConfig": {"responseMimeType": "application/json"}},
    text_in=lambda streamed: "".join(_gemini_part(event)["text"] for event in streamed),
    call_in=_gemini_call,
    whole_text=lambda body: _gemini_part(body)["text"],
)
VENDORS = (ANTHROPIC, RESPONSES, CHAT, GEMINI)
