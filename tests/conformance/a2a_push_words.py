"""Push configurations as every version and binding encodes them; the rows know only their fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.conformance.a2a_speakers import JsonRpc03, JsonRpc10, Rest, Rest03, Speaker

WIRE = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Config:
    """A configuration, decoded from any binding."""

    url: str
    id: str = ""
    token: str = ""
    scheme: str = ""
    credentials: str = ""


def set_push(speaker: Speaker, task_id: str, config: Config) -> Config:
    match speaker:
        case JsonRpc10():
            return _flat(speaker.call("push", {"taskId": task_id, **flat(config)}))
        case JsonRpc03():
            return _nested(speaker.call("push", {"taskId": task_id, "pushNotificationConfig": nested(config)}))
        case Rest03():
            body = {"config": {"name": "", "pushNotificationConfig": nested(config)}}
            return _nested(speaker.ask("POST", f"/tasks/{task_id}/pushNotificationConfigs", body))
        case Rest():
            return _flat(speaker.ask("POST", f"/tasks/{task_id}/pushNotificationConfigs", flat(config)))
        case _:
            raise TypeError(speaker)


def get_push(speaker: Speaker, task_id: str, config_id: str) -> Config:
    match speaker:
        case JsonRpc10():
            return _flat(speaker.call("get_push", {"taskId": task_id, "id": config_id}))
        case JsonRpc03():
            return _nested(speaker.call("get_push", {"id": task_id, "pushNotificationConfigId": config_id}))
        case Rest():
            told = speaker.ask("GET", f"/tasks/{task_id}/pushNotificationConfigs/{config_id}")
            return _nested(told) if isinstance(speaker, Rest03) else _flat(told)
        case _:
            raise TypeError(speaker)


def list_push(speaker: Speaker, task_id: str) -> list[Config]:
    match speaker:
        case JsonRpc10():
            return [_flat(one) for one in speaker.call("list_push", {"taskId": task_id})["configs"]]
        case JsonRpc03():
            return [_nested(one) for one in speaker.call("list_push", {"id": task_id})]
        case Rest():
            if isinstance(speaker, Rest03):
                # Clients of 0.3 have no list in REST, so a caller that lists them can name the version.
                speaker.names_version = True
            told = speaker.ask("GET", f"/tasks/{task_id}/pushNotificationConfigs")["configs"]
            return [_nested(one) if isinstance(speaker, Rest03) else _flat(one) for one in told]
        case _:
            raise TypeError(speaker)


def delete_push(speaker: Speaker, task_id: str, config_id: str) -> None:
    match speaker:
        case JsonRpc10():
            speaker.call("delete_push", {"taskId": task_id, "id": config_id})
        case JsonRpc03():
            speaker.call("delete_push", {"id": task_id, "pushNotificationConfigId": config_id})
        case Rest():
            speaker.ask("DELETE", f"/tasks/{task_id}/pushNotificationConfigs/{config_id}")
        case _:
            raise TypeError(speaker)


def send_with_push(speaker: Speaker, text: str, message_id: str, config: Config) -> str:
    """Sends a message with a configuration; returns the task's id once it has ended."""
    new = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}
    match speaker:
        case JsonRpc10():
            body = {"message": new, "configuration": {"taskPushNotificationConfig": flat(config)}}
            return str(speaker.call("send", body)["task"]["id"])
        case JsonRpc03():
            said = {
                "kind": "message",
                "messageId": message_id,
                "role": "user",
                "parts": [{"kind": "text", "text": text}],
            }
            body = {"message": said, "configuration": {"pushNotificationConfig": nested(config), "blocking": True}}
            return str(speaker.call("send", body)["id"])
        case Rest03():
            said = {"messageId": message_id, "role": "ROLE_USER", "content": [{"text": text}]}
            body = {"message": said, "configuration": {"pushNotification": nested(config), "blocking": True}}
            return str(speaker.ask("POST", "/message:send", body)["task"]["id"])
        case Rest():
            body = {"message": new, "configuration": {"taskPushNotificationConfig": flat(config)}}
            return str(speaker.ask("POST", "/message:send", body)["task"]["id"])
        case _:
            raise TypeError(speaker)


def flat(config: Config) -> WIRE:
    """Returns the configuration as 1.0 encodes it."""
    authentication = {"scheme": config.scheme, "credentials": config.credentials}
    return _fields(config) | ({"authentication": authentication} if config.scheme else {})


def nested(config: Config) -> WIRE:
    """Returns the configuration as 0.3 encodes it."""
    authentication = {"schemes": [config.scheme], "credentials": config.credentials}
    return _fields(config) | ({"authentication": authentication} if config.scheme else {})


def _fields(config: Config) -> WIRE:
    return {name: value for name, value in (("id", config.id), ("url", config.url), ("token", config.token)) if value}


def _flat(told: WIRE) -> Config:
    authentication = told.get("authentication", {})
    return _config(told, authentication.get("scheme", ""), authentication.get("credentials", ""))


def _nested(told: WIRE) -> Config:
    inner = told["pushNotificationConfig"]
    authentication = inner.get("authentication", {})
    return _config(inner, "".join(authentication.get("schemes", [])), authentication.get("credentials", ""))


def _config(told: WIRE, scheme: str, credentials: str) -> Config:
    return Config(id=told["id"], url=told["url"], token=told.get("token", ""), scheme=scheme, credentials=credentials)
