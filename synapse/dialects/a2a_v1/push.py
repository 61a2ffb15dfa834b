"""Push notifications of A2A 1.0: operations on webhook configurations, and the body of a notification."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final

import msgspec

from synapse.core.errors import InvalidField
from synapse.core.events import Update
from synapse.core.push import PushConfig
from synapse.core.requests import DeletePushConfig, GetPushConfig, ListPushConfigs, SetPushConfig
from synapse.dialects.a2a_v1.decode import GivenName, Name, PushShape, Token, push_config
from synapse.dialects.a2a_v1.encode import Wire, encode_update
from synapse.dialects.dialect import Call, Params, WireRequest
from synapse.dialects.proto_json import ProtoReader, Spellings, to_json


class OfTaskShape(msgspec.Struct, rename="camel"):
    """A request about one configuration."""

    task_id: GivenName
    id: GivenName


class ListShape(msgspec.Struct, rename="camel"):
    task_id: GivenName
    page_size: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0
    page_token: Token = ""


_SPELLINGS: Final = Spellings(numbers=frozenset({"pageSize"}))
_SET: Final = ProtoReader(PushShape, _SPELLINGS)
_OF_TASK: Final = ProtoReader(OfTaskShape, _SPELLINGS)
_LIST: Final = ProtoReader(ListShape, _SPELLINGS)


def create(wire: WireRequest) -> Call[PushConfig]:
    shape, task_id = _SET.read(wire.body), wire.params["id"]
    if shape.task_id not in ("", task_id):
        raise InvalidField("taskId", "is not the task that the path names")
    return _create(task_id, shape)


def rpc_create(params: Params, _wire: WireRequest) -> Call[PushConfig]:
    shape = _SET.read(params)
    if not shape.task_id:
        raise InvalidField("taskId", "is missing")
    return _create(shape.task_id, shape)


def get(wire: WireRequest) -> Call[PushConfig]:
    return _get(OfTaskShape(wire.params["id"], wire.params["config"]))


def rpc_get(params: Params, _wire: WireRequest) -> Call[PushConfig]:
    return _get(_OF_TASK.read(params))


def list_all(wire: WireRequest) -> Call[tuple[PushConfig, ...]]:
    return _list(_LIST.read_query(wire.query(), taskId=wire.params["id"]))


def rpc_list(params: Params, _wire: WireRequest) -> Call[tuple[PushConfig, ...]]:
    return _list(_LIST.read(params))


def delete(wire: WireRequest) -> Call[None]:
    return _delete(OfTaskShape(wire.params["id"], wire.params["config"]))


def rpc_delete(params: Params, _wire: WireRequest) -> Call[None]:
    return _delete(_OF_TASK.read(params))


def encode_notification(update: Update) -> bytes | None:
    """Returns the body of a notification, which is the result that a stream would send (1.0 §4.3.3)."""
    return encode_update(update)


def _create(task_id: Name, shape: PushShape) -> Call[PushConfig]:
    return Call(SetPushConfig(task_id=task_id, config=push_config(shape)), partial(_encode, task_id))


def _get(shape: OfTaskShape) -> Call[PushConfig]:
    return Call(GetPushConfig(task_id=shape.task_id, config_id=shape.id), partial(_encode, shape.task_id))


def _list(shape: ListShape) -> Call[tuple[PushConfig, ...]]:
    token = shape.page_token or "0"
    if not (token.isascii() and token.isdigit() and len(token) < 10):
        raise InvalidField("pageToken", "is not a token of this list", hint="start again without it")
    encode = partial(_encode_page, shape.task_id, int(token), shape.page_size)
    return Call(ListPushConfigs(task_id=shape.task_id), encode)


def _delete(shape: OfTaskShape) -> Call[None]:
    return Call(DeletePushConfig(task_id=shape.task_id, config_id=shape.id), _nothing)


def _nothing(_deleted: object) -> bytes:
    return b"{}"


def _encode(task_id: str, config: PushConfig) -> bytes:
    return to_json(push_object(task_id, config))


def _encode_page(task_id: str, start: int, size: int, configs: Sequence[PushConfig]) -> bytes:
    end = start + size if size else len(configs)
    following = str(end) if end < len(configs) else ""
    page = [push_object(task_id, config) for config in configs[start:end]]
    return to_json({"configs": page, "nextPageToken": following})


def push_object(task_id: str, config: PushConfig) -> Wire:
    """Returns a TaskPushNotificationConfig with its secrets, which callers who may see the task may see too."""
    wire: Wire = {"id": config.id, "taskId": task_id, "url": config.url}
    if config.token:
        wire["token"] = config.token
    if config.scheme:
        credentials = {"credentials": config.credentials} if config.credentials else {}
        wire["authentication"] = {"scheme": config.scheme, **credentials}
    return wire
