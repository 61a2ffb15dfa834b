"""Push notifications of A2A 0.3: operations on webhook configurations, and the body of a notification."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from synapse.core.errors import InvalidField
from synapse.core.events import ArtifactAdded, StateChanged, TaskOpened, Update
from synapse.core.push import PushConfig
from synapse.core.requests import DeletePushConfig, GetPushConfig, ListPushConfigs, SetPushConfig
from synapse.dialects.a2a_v0_3.decode import Address, GivenName, Name, PushShape, push_config
from synapse.dialects.a2a_v0_3.encode import JSON_RPC, Wire
from synapse.dialects.dialect import Call, Params, WireRequest
from synapse.dialects.proto_json import ProtoReader, Spellings, to_json


class SetShape(msgspec.Struct, rename="camel"):
    """A TaskPushNotificationConfig of JSON-RPC."""

    task_id: GivenName
    push_notification_config: PushShape


class NamedShape(msgspec.Struct, rename="camel"):
    """A TaskPushNotificationConfig of the protobuf."""

    push_notification_config: PushShape
    name: Address = ""


class ProtoSetShape(msgspec.Struct, rename="camel"):
    """The body of a REST request: the configuration alone, as the protobuf's annotations define it, or the whole
    request, as the SDKs send it."""

    config: NamedShape | None = None
    config_id: Name = ""
    push_notification_config: PushShape | None = None


class OfTaskShape(msgspec.Struct, rename="camel"):
    """A request about one configuration of the task `id`. Without a configuration id, it means the only one."""

    id: GivenName
    push_notification_config_id: Name = ""


_SET: Final = ProtoReader(SetShape, Spellings())
_PROTO_SET: Final = ProtoReader(ProtoSetShape, Spellings())
_OF_TASK: Final = ProtoReader(OfTaskShape, Spellings())


def set_config(wire: WireRequest) -> Call[PushConfig]:
    shape, task_id = _PROTO_SET.read(wire.body), wire.params["id"]
    given = shape.config.push_notification_config if shape.config else shape.push_notification_config
    if given is None:
        raise InvalidField("config.pushNotificationConfig", "is missing")
    config = push_config(given, shape.config_id or wire.query().get("configId", ""))
    return Call(SetPushConfig(task_id=task_id, config=config), partial(_encode_named, task_id))


def rpc_set(params: Params, _wire: WireRequest) -> Call[PushConfig]:
    shape = _SET.read(params)
    config = push_config(shape.push_notification_config)
    return Call(SetPushConfig(task_id=shape.task_id, config=config), partial(_encode, shape.task_id))


def get(wire: WireRequest) -> Call[PushConfig]:
    task_id = wire.params["id"]
    return Call(GetPushConfig(task_id=task_id, config_id=wire.params["config"]), partial(_encode_named, task_id))


def rpc_get(params: Params, _wire: WireRequest) -> Call[PushConfig]:
    shape = _OF_TASK.read(params)
    request = GetPushConfig(task_id=shape.id, config_id=shape.push_notification_config_id)
    return Call(request, partial(_encode, shape.id))


def list_all(wire: WireRequest) -> Call[tuple[PushConfig, ...]]:
    task_id = wire.params["id"]
    return Call(ListPushConfigs(task_id=task_id), partial(_encode_named_page, task_id))


def rpc_list(params: Params, _wire: WireRequest) -> Call[tuple[PushConfig, ...]]:
    shape = _OF_TASK.read(params)
    return Call(ListPushConfigs(task_id=shape.id), partial(_encode_all, shape.id))


def delete(wire: WireRequest) -> Call[None]:
    return Call(DeletePushConfig(task_id=wire.params["id"], config_id=wire.params["config"]), _nothing)


def rpc_delete(params: Params, _wire: WireRequest) -> Call[None]:
    shape = _OF_TASK.read(params)
    if not shape.push_notification_config_id:
        raise InvalidField("pushNotificationConfigId", "is missing")
    request = DeletePushConfig(task_id=shape.id, config_id=shape.push_notification_config_id)
    return Call(request, _null)


def encode_notification(update: Update) -> bytes | None:
    """Returns the body of a notification, which in 0.3 is the whole task after the update."""
    return (
        JSON_RPC.encode_task(update.task)
        if isinstance(update.event, TaskOpened | StateChanged | ArtifactAdded)
        else None
    )


def _nothing(_deleted: object) -> bytes:
    return b"{}"


def _null(_deleted: object) -> bytes:
    return b"null"


def _encode(task_id: str, config: PushConfig) -> bytes:
    return to_json(_of_task(task_id, config))


def _encode_all(task_id: str, configs: Sequence[PushConfig]) -> bytes:
    return to_json([_of_task(task_id, config) for config in configs])


def _encode_named(task_id: str, config: PushConfig) -> bytes:
    return to_json(_named(task_id, config))


def _encode_named_page(task_id: str, configs: Sequence[PushConfig]) -> bytes:
    return to_json({"configs": [_named(task_id, config) for config in configs]})


def _of_task(task_id: str, config: PushConfig) -> Wire:
    return {"taskId": task_id, "pushNotificationConfig": push_object(config)}


def _named(task_id: str, config: PushConfig) -> Wire:
    name = f"tasks/{task_id}/pushNotificationConfigs/{config.id}"
    return {"name": name, "pushNotificationConfig": push_object(config)}


def push_object(config: PushConfig) -> Wire:
    """Returns a PushNotificationConfig with its secrets, which callers who may see the task may see too."""
    wire: Wire = {"id": config.id, "url": config.url}
    if config.token:
        wire["token"] = config.token
    if config.scheme:
        credentials = {"credentials": config.credentials} if config.credentials else {}
        wire["authentication"] = {"schemes": [config.scheme], **credentials}
    return wire
