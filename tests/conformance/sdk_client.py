"""Shared parts of the conversations that clients of the SDK hold."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

from a2a.client import Client
from a2a.types import a2a_pb2 as a2a


def message(text: str, cue: str = "plain", **more: Any) -> a2a.SendMessageRequest:
    """Returns a request whose message id begins with the cue that a script answers to."""
    spoken = a2a.Message(message_id=f"{cue}-{uuid.uuid4()}", role=a2a.ROLE_USER, parts=[a2a.Part(text=text)], **more)
    return a2a.SendMessageRequest(message=spoken)


async def everything(events: AsyncIterator[a2a.StreamResponse]) -> list[a2a.StreamResponse]:
    return [event async for event in events]


async def ended(client: Client, request: a2a.SendMessageRequest) -> a2a.Task:
    """Returns the task after all events of a message."""
    first, *_ = await everything(client.send_message(request))
    return await client.get_task(a2a.GetTaskRequest(id=first.task.id))
