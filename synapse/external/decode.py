"""Decodes the answers of external agents, in all protocols, into one RemoteTaskState. Pure; skips what is not valid.

The parts of messages and artifacts:

1.0             {"text"} {"raw"} {"url"} {"data"}, with `filename` and `mediaType`
0.3, synapse    {"text"} {"file": {"bytes" or "uri"}} {"data"}, under a tag
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec

from synapse.core.errors import ExternalAgentFailed, ExternalAgentUnreachable
from synapse.core.message import Artifact, DataPart, FilePart, Part, TextPart
from synapse.core.requests import ExternalAnswer
from synapse.core.task import TaskState
from synapse.core.text import sanitise
from synapse.net.http_types import HttpAnswer

DEEPEST: Final = 64
"""Levels of nesting: code that stores or prints an answer later recurses too."""
_NOT_THERE: Final = (502, 503, 504)
"""A proxy answers with these in place of an agent that does not answer."""

_SETTLED: Final = {state.value for state in TaskState if state.is_terminal or state.is_interrupted}
_AGENT_ROLES: Final = ("agent", "ROLE_AGENT")
_KINDS: Final = {
    "task": "task",
    "message": "message",
    "status-update": "statusUpdate",
    "artifact-update": "artifactUpdate",
}
"""The `kind` of an object in 0.3, and the member that holds it in 1.0."""

Fields = Mapping[str, Any]


class RemoteTaskState:
    """The state of a remote task, or of a message that answers without one. Takes whole tasks and streamed updates."""

    def __init__(self) -> None:
        self._task: Fields = {}
        self._message: Fields = {}
        self._unfinished: set[str] = set()

    @property
    def is_settled(self) -> bool:
        """Whether the agent sends nothing more unless we send a message."""
        return bool(self._message) or self.state in _SETTLED

    @property
    def task_id(self) -> str:
        return text_of(self._task, "id") or text_of(self._message, "taskId")

    @property
    def context_id(self) -> str:
        """The agent's id of the conversation that the task belongs to."""
        known = self._task or self._message
        return text_of(known, "contextId") or text_of(known, "context_id")

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The artifacts so far."""
        given = (artifact_of(fields_of(item), index) for index, item in enumerate(list_of(self._task.get("artifacts"))))
        return tuple(artifact for artifact in given if artifact is not None)

    def is_whole(self, artifact_id: str) -> bool:
        """Whether no more chunks of the artifact are announced."""
        return artifact_id not in self._unfinished

    @property
    def words(self) -> tuple[Part, ...]:
        """The parts of the message with the task's status, or in place of a task; else of the agent's last message."""
        if self._message:
            return parts_of(self._message)
        status = fields_of(fields_of(self._task.get("status")).get("message"))
        said = (fields_of(item) for item in reversed(list_of(self._task.get("history"))))
        last = next((parts_of(item) for item in said if text_of(item, "role") in _AGENT_ROLES), ())
        return parts_of(status) or last

    @property
    def note(self) -> str:
        """The text of the message with the task's status, or an empty string."""
        return _parts_text(fields_of(fields_of(self._task.get("status")).get("message")))

    @property
    def state(self) -> str:
        """The state as a value of TaskState, or in the agent's own word if there is none for it."""
        if self._message:
            return TaskState.COMPLETED.value
        status = self._task.get("status")
        word = status if isinstance(status, str) else text_of(fields_of(status), "state")
        plain = word.lower().removeprefix("task_state_").replace("-", "_")
        return {"cancelled": "canceled", "": "unknown"}.get(plain, sanitise(plain))

    def receive(self, update: Fields) -> None:
        """Takes a result, or one event of a stream; ignores unknown kinds."""
        kind = _KINDS.get(text_of(update, "kind"))
        if kind is not None:
            update = {kind: update}
        elif "id" in update and "status" in update:
            update = {"task": update}
        if "task" in update:
            self._task = fields_of(update["task"])
            self._unfinished.clear()
        elif "message" in update:
            self._message = fields_of(update["message"])
        elif "statusUpdate" in update:
            self._receive_status(fields_of(update["statusUpdate"]))
        elif "artifactUpdate" in update:
            self._receive_artifact(fields_of(update["artifactUpdate"]))

    def answer(self, alias: str) -> ExternalAnswer:
        """Returns the answer so far. Raises ExternalAgentFailed when there is neither a task nor a message."""
        if not self._task and not self._message:
            raise ExternalAgentFailed("its answer is neither a task nor a message")
        raw = dict(self._message or self._task)
        return ExternalAnswer(alias=alias, task_id=self.task_id, state=self.state, text=self._shown_text(), raw=raw)

    def _receive_status(self, update: Fields) -> None:
        context = {"contextId": update["contextId"]} if "contextId" in update else {}
        self._task = {"id": text_of(update, "taskId"), **context, **self._task, "status": update.get("status")}

    def _receive_artifact(self, update: Fields) -> None:
        new = fields_of(update.get("artifact"))
        known = {
            text_of(fields_of(item), "artifactId"): fields_of(item) for item in list_of(self._task.get("artifacts"))
        }
        key = text_of(new, "artifactId")
        if update.get("append") is True and key in known:
            new = {**known[key], "parts": _joined(list_of(known[key].get("parts")), list_of(new.get("parts")))}
        known[key] = new
        (self._unfinished.discard if update.get("lastChunk") is True else self._unfinished.add)(key)
        self._task = {"id": text_of(update, "taskId"), **self._task, "artifacts": list(known.values())}

    def _shown_text(self) -> str:
        """Returns the answer for a person: the artifacts, or the last message when the task asks or failed."""
        if self._message:
            return _parts_text(self._message)
        artifacts = "\n".join(
            filter(None, (_parts_text(fields_of(item)) for item in list_of(self._task.get("artifacts"))))
        )
        if self.state in (TaskState.COMPLETED.value, TaskState.WORKING.value):
            return artifacts or self._last_message()
        return self._last_message() or artifacts

    def _last_message(self) -> str:
        status = fields_of(self._task.get("status"))
        if words := _parts_text(fields_of(status.get("message"))):
            return words
        for item in reversed(list_of(self._task.get("history"))):
            if text_of(fields_of(item), "role") in _AGENT_ROLES:
                return _parts_text(fields_of(item))
        return sanitise(text_of(fields_of(self._task.get("metadata")), "note"))


def result_of(answer: HttpAnswer) -> dict[str, Any]:
    """Returns the result in an answer.

    Raises ExternalAgentFailed when the answer is an error, or not a JSON object.
    """
    if answer.location:
        raise ExternalAgentFailed(
            f"it redirects to {sanitise(answer.location)[:200]}", hint="add the agent by that address"
        )
    if answer.status in (401, 403):
        raise ExternalAgentFailed(
            f"it wants credentials (status {answer.status})",
            hint="`synapse external add URL --bearer-env VARIABLE` stores them",
        )
    if answer.status in _NOT_THERE:
        raise ExternalAgentUnreachable(f"it does not answer (status {answer.status}){_reason(answer.body)}")
    if answer.status >= 400:
        raise ExternalAgentFailed(f"it refused (status {answer.status}){_reason(answer.body)}")
    return rpc_result(json_object(answer.body))


def rpc_result(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns the result of a JSON-RPC response, or `answer` itself if it is none. Raises ExternalAgentFailed."""
    if answer.get("error"):
        raise ExternalAgentFailed(f"it refused{error_text(answer)}")
    return fields_of(answer["result"]) if "jsonrpc" in answer and "result" in answer else answer


def json_object(body: bytes | str) -> dict[str, Any]:
    """Returns the JSON object in `body`. Raises ExternalAgentFailed."""
    try:
        value = cast("object", msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ExternalAgentFailed("its answer is not JSON") from error
    if not isinstance(value, dict):
        raise ExternalAgentFailed("its answer is not a JSON object")
    fields = cast("dict[str, Any]", value)
    if _is_deeper(fields, DEEPEST):
        raise ExternalAgentFailed(f"its answer is nested deeper than {DEEPEST} levels")
    return fields


def _reason(body: bytes) -> str:
    try:
        return error_text(json_object(body))
    except ExternalAgentFailed:
        return ""


def error_text(fields: Fields) -> str:
    """Returns the message of an error body in any of the common shapes, as `: text`, or an empty string."""
    error = fields.get("error")
    for text in (text_of(fields_of(error), "message"), error, fields.get("detail"), fields.get("message")):
        if isinstance(text, str) and text:
            return f": {' '.join(sanitise(text).split())[:300]}"
    return ""


def _joined(known: list[object], more: list[object]) -> list[object]:
    """Joins the parts of an artifact and of its next chunk; a text continues the text before it."""
    if known and more:
        last, first = fields_of(known[-1]), fields_of(more[0])
        if isinstance(last.get("text"), str) and isinstance(first.get("text"), str):
            return [*known[:-1], {**last, "text": last["text"] + first["text"]}, *more[1:]]
    return [*known, *more]


def _parts_text(holder: Mapping[str, Any]) -> str:
    texts = (text_of(fields_of(part), "text") for part in list_of(holder.get("parts")))
    return sanitise("\n".join(filter(None, texts)))


def _is_deeper(value: object, levels: int) -> bool:
    level: list[object] = [value]
    for _ in range(levels):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: object) -> Iterable[object]:
    return cast("dict[str, object]", value).values() if isinstance(value, dict) else list_of(value)


def fields_of(value: object) -> dict[str, Any]:
    """Returns a JSON object, or an empty one in place of any other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_of(value: object) -> list[object]:
    """Returns a JSON list, or an empty one in place of any other value."""
    return cast("list[object]", value) if isinstance(value, list) else []


def text_of(fields: Fields, key: str) -> str:
    """Returns a string of a JSON object, or an empty one in place of any other value."""
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def parts_of(holder: Fields) -> tuple[Part, ...]:
    """Returns the parts of a message or an artifact."""
    return tuple(part for item in list_of(holder.get("parts")) if (part := _part(fields_of(item))) is not None)


def to_1_0(value: Any) -> Any:
    """Converts JSON of REST 0.3 to 1.0: in 0.3 the parts of a message are its `content`, and data is wrapped."""
    if isinstance(value, list):
        return [to_1_0(item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    return dict(_field_to_1_0(key, item) for key, item in fields.items())


def _field_to_1_0(key: str, value: Any) -> tuple[str, Any]:
    if key in ("parts", "content") and isinstance(value, list):
        return "parts", [_part_to_1_0(part) for part in cast("list[object]", value)]
    return key, value if key == "metadata" else to_1_0(value)


def _part_to_1_0(part: Any) -> Any:
    data = fields_of(fields_of(part).get("data"))
    return {**part, "data": data["data"]} if "data" in data else part


def artifact_of(fields: Fields, number: int) -> Artifact | None:
    """Returns an artifact, or None if it has no parts. One without an id gets its number as id."""
    parts = parts_of(fields)
    if not parts:
        return None
    return Artifact(
        artifact_id=artifact_id(fields) or f"artifact-{number}",
        parts=parts,
        name=text_of(fields, "name"),
        description=text_of(fields, "description"),
        metadata=fields_of(fields.get("metadata")),
    )


def artifact_id(fields: Fields) -> str:
    """Returns the id of an artifact, or an empty string."""
    return text_of(fields, "artifactId") or text_of(fields, "artifact_id")


def _part(fields: Fields) -> Part | None:
    metadata = fields_of(fields.get("metadata"))
    name, media_type = text_of(fields, "filename"), text_of(fields, "mediaType")
    if isinstance(fields.get("text"), str):
        return TextPart(text=fields["text"], name=name, media_type=media_type, metadata=metadata)
    if "data" in fields:
        return DataPart(data=fields["data"], name=name, media_type=media_type, metadata=metadata)
    file = fields_of(fields.get("file"))
    name = name or text_of(file, "name")
    media_type = media_type or text_of(file, "mimeType")
    content = _decoded(text_of(fields, "raw") or text_of(file, "bytes") or text_of(file, "fileWithBytes"))
    url = text_of(fields, "url") or text_of(file, "uri") or text_of(file, "fileWithUri")
    if content is None and not url:
        return None
    return FilePart(
        content=content, url="" if content is not None else url, name=name, media_type=media_type, metadata=metadata
    )


def _decoded(text: str) -> bytes | None:
    """Decodes base64 in either alphabet, with or without padding."""
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True) if text else None
    except (binascii.Error, ValueError):
        return None
