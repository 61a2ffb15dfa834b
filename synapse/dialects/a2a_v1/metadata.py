"""A task's metadata as A2A names things, in camelCase. What others put there stays as they wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

NAMES: Final[Mapping[str, str]] = {
    "sender_verified": "senderVerified",
    "sender_task_id": "senderTaskId",
    "sender_inbox": "senderInbox",
    "response_expected": "responseExpected",
    "in_reply_to": "inReplyTo",
    "waits_for": "waitsFor",
    "waits_for_inbox": "waitsForInbox",
    "waiter_left": "waiterLeft",
}
"""The keys that are ours."""
INNER_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "sender": {"sender_id": "senderId", "sender_type": "senderType", "sender_endpoint": "senderEndpoint"},
    "question": {"takes_text": "takesText", "asked_at": "askedAt"},
}
"""The keys inside of those that are objects."""


_OF_MESSAGES: Final[Mapping[str, str]] = {"answers_question": "answersQuestion", "typed_from": "typedFrom"}
"""What we say of a message: which question it answered, and who added it. The rest of its metadata is the sender's."""


def encode_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {NAMES.get(key, key): _inner(key, value) for key, value in metadata.items()}


def encode_message_metadata(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    if _OF_MESSAGES.keys().isdisjoint(metadata):
        return metadata
    return {_OF_MESSAGES.get(key, key): value for key, value in metadata.items()}


def _inner(key: str, value: Any) -> Any:
    names = INNER_NAMES.get(key)
    if names is None or not isinstance(value, dict):
        return value
    return {names.get(inner, inner): kept for inner, kept in cast("dict[str, Any]", value).items()}
