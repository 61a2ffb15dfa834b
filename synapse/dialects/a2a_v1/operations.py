"""The operations of A2A 1.0: what each asks of the agent, and how the answer is told. The same in every binding."""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from synapse.core.errors import UnsupportedOperation
from synapse.core.events import Update
from synapse.core.requests import CancelTask, FollowTask, GetTask, SendAndFollow, SendAndWait
from synapse.dialects.a2a_v1 import projection
from synapse.dialects.a2a_v1.decoding import list_request, send_request
from synapse.dialects.a2a_v1.shapes import GetShape, ListShape, SendShape, TaskShape
from synapse.dialects.dialect import Call, StreamCall, WireEvent


def send_message(shape: SendShape) -> Call:
    """Wait until the task has ended or asks for something, unless told to return at once (1.0 §3.2.2)."""
    send = send_request(shape)
    encode = partial(projection.encode_sent, history_length=_history_length(shape))
    if shape.configuration is not None and shape.configuration.return_immediately:
        return Call(send, encode)
    return Call(SendAndWait(send), encode)


def send_streaming_message(shape: SendShape) -> StreamCall:
    return StreamCall(SendAndFollow(send_request(shape)), partial(_event, history_length=_history_length(shape)))


def get_task(shape: GetShape) -> Call:
    encode = partial(projection.encode_task, history_length=shape.history_length)
    return Call(GetTask(shape.id, exact=True), encode)


def list_tasks(shape: ListShape) -> Call:
    encode = partial(
        projection.encode_page,
        page_size=shape.page_size,
        history_length=shape.history_length,
        artifacts=shape.include_artifacts,
    )
    return Call(list_request(shape), encode)


def cancel_task(shape: TaskShape) -> Call:
    return Call(CancelTask(shape.id, exact=True), projection.encode_task)


def subscribe_to_task(shape: TaskShape, after: int | None = None) -> StreamCall:
    """Follow a task; `after` is the id of the last event that a reader of an earlier stream has seen."""
    return StreamCall(FollowTask(task_id=shape.id, after=after), _event)


def refuse_extended_card() -> NoReturn:
    # 1.0 §3.1.11: an agent that does not declare the capability does not support the operation.
    raise UnsupportedOperation("this agent has no extended card")


def _event(update: Update, history_length: int | None = None) -> WireEvent | None:
    told = projection.encode_update(update, history_length)
    return None if told is None else WireEvent(str(update.seq), "", told)


def _history_length(shape: SendShape) -> int | None:
    return shape.configuration.history_length if shape.configuration is not None else None
