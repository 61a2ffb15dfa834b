"""What external agents answer, in any of the protocols, put together into one report. Pure.

From the parts and artifacts of external agents, in any of the protocols, to ours. Pure; what makes no sense is out.

1.0        {"text"} {"raw"} {"url"} {"data"}, with `filename` and `mediaType`
0.3, ours  {"text"} {"file": {"bytes" or "uri"}} {"data"}, under a tag
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

_NOT_THERE: Final = (502, 503, 504)
"""What a proxy says in place of an agent that does not answer."""
DEEPEST: Final = 64
"""Levels of nesting: whoever stores or prints an answer later recurses too."""

_SETTLED: Final = {state.value for state in TaskState if state.is_terminal or state.is_interrupted}
_AGENT_ROLES: Final = ("agent", "ROLE_AGENT")
_KINDS: Final = {
    "task": "task",
    "message": "message",
    "status-update": "statusUpdate",
    "artifact-update": "artifactUpdate",
}
"""How 0.3 tags what 1.0 names by its member."""

_Object = dict[str, Any]


class RemoteTaskState:
    """What is known of a message over there. It takes whole tasks and streamed updates alike."""

    def __init__(self) -> None:
        self._task: _Object = {}
        self._message: _Object = {}
        self._unfinished: set[str] = set()

    @property
    def is_settled(self) -> bool:
        """Whether nothing more comes without a word from us."""
        return bool(self._message) or self.state in _SETTLED

    @property
    def task_id(self) -> str:
        return _text(self._task, "id") or _text(self._message, "taskId")

    @property
    def context_id(self) -> str:
        """The conversation that the task belongs to over there."""
        known = self._task or self._message
        return _text(known, "contextId") or _text(known, "context_id")

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """What was handed over so far."""
        given = (artifact_of(_object(item), index) for index, item in enumerate(_list(self._task.get("artifacts"))))
        return tuple(artifact for artifact in given if artifact is not None)

    def is_whole(self, artifact_id: str) -> bool:
        """Whether no more chunks of an artifact are announced."""
        return artifact_id not in self._unfinished

    @property
    def words(self) -> tuple[Part, ...]:
        """What the agent says with its state, or instead of a task; the last thing that it said if it says nothing."""
        if self._message:
            return parts_of(self._message)
        status = _object(_object(self._task.get("status")).get("message"))
        said = (_object(item) for item in reversed(_list(self._task.get("history"))))
        last = next((parts_of(item) for item in said if _text(item, "role") in _AGENT_ROLES), ())
        return parts_of(status) or last

    @property
    def note(self) -> str:
        """What the agent says with its state, as one text; empty when it says nothing."""
        return _parts_text(_object(_object(self._task.get("status")).get("message")))

    @property
    def state(self) -> str:
        """The state in our words, or in the agent's own when we have none for it."""
        if self._message:
            return TaskState.COMPLETED.value
        status = self._task.get("status")
        word = status if isinstance(status, str) else _text(_object(status), "state")
        plain = word.lower().removeprefix("task_state_").replace("-", "_")
        return {"cancelled": "canceled", "": "unknown"}.get(plain, sanitise(plain))

    def receive(self, said: _Object) -> None:
        """Take in a result or one event of a stream; what is of no known kind is passed over."""
        kind = _KINDS.get(_text(said, "kind"))
        if kind is not None:
            said = {kind: said}
        elif "id" in said and "status" in said:
            said = {"task": said}
        if "task" in said:
            self._task = _object(said["task"])
            self._unfinished.clear()
        elif "message" in said:
            self._message = _object(said["message"])
        elif "statusUpdate" in said:
            self._receive_status(_object(said["statusUpdate"]))
        elif "artifactUpdate" in said:
            self._receive_artifact(_object(said["artifactUpdate"]))

    def answer(self, alias: str) -> ExternalAnswer:
        """Raises ExternalAgentFailed when nothing was said that makes sense."""
        if not self._task and not self._message:
            raise ExternalAgentFailed("its answer is neither a task nor a message")
        raw = self._message or self._task
        return ExternalAnswer(alias=alias, task_id=self.task_id, state=self.state, text=self._said(), raw=raw)

    def _receive_status(self, update: _Object) -> None:
        context = {"contextId": update["contextId"]} if "contextId" in update else {}
        self._task = {"id": _text(update, "taskId"), **context, **self._task, "status": update.get("status")}

    def _receive_artifact(self, update: _Object) -> None:
        new = _object(update.get("artifact"))
        known = {_text(_object(item), "artifactId"): _object(item) for item in _list(self._task.get("artifacts"))}
        key = _text(new, "artifactId")
        if update.get("append") is True and key in known:
            new = {**known[key], "parts": _joined(_list(known[key].get("parts")), _list(new.get("parts")))}
        known[key] = new
        (self._unfinished.discard if update.get("lastChunk") is True else self._unfinished.add)(key)
        self._task = {"id": _text(update, "taskId"), **self._task, "artifacts": list(known.values())}

    def _said(self) -> str:
        """The answer for a person: what was handed over, or, when something is asked or went wrong, what was said."""
        if self._message:
            return _parts_text(self._message)
        handed = "\n".join(filter(None, (_parts_text(_object(item)) for item in _list(self._task.get("artifacts")))))
        if self.state in (TaskState.COMPLETED.value, TaskState.WORKING.value):
            return handed or self._last_words()
        return self._last_words() or handed

    def _last_words(self) -> str:
        status = _object(self._task.get("status"))
        if words := _parts_text(_object(status.get("message"))):
            return words
        for item in reversed(_list(self._task.get("history"))):
            if _text(_object(item), "role") in _AGENT_ROLES:
                return _parts_text(_object(item))
        return sanitise(_text(_object(self._task.get("metadata")), "note"))


def result_of(answer: HttpAnswer) -> _Object:
    """Return what an answer says.

    Raises ExternalAgentFailed when it is a refusal, or no JSON object.
    """
    if answer.location:
        raise ExternalAgentFailed(f"it sends us to {sanitise(answer.location)[:200]}", hint="add it by that address")
    if answer.status in (401, 403):
        raise ExternalAgentFailed(
            f"it wants credentials (status {answer.status}) that we do not have",
            hint="`synapse external add URL --bearer-env VARIABLE` remembers some",
        )
    if answer.status in _NOT_THERE:
        raise ExternalAgentUnreachable(f"it does not answer (status {answer.status}){_reason(answer.body)}")
    if answer.status >= 400:
        raise ExternalAgentFailed(f"it refused (status {answer.status}){_reason(answer.body)}")
    return rpc_result(json_object(answer.body))


def rpc_result(said: _Object) -> _Object:
    """Return what is in a JSON-RPC envelope, or `said` itself when it is in none. Raises ExternalAgentFailed."""
    if said.get("error"):
        raise ExternalAgentFailed(f"it refused{sentence_of(said)}")
    return _object(said["result"]) if "jsonrpc" in said and "result" in said else said


def json_object(body: bytes | str) -> _Object:
    """Return the JSON object in `body`. Raises ExternalAgentFailed."""
    try:
        value = cast("object", msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ExternalAgentFailed("its answer is not JSON") from error
    if not isinstance(value, dict):
        raise ExternalAgentFailed("its answer is not a JSON object")
    fields = cast("_Object", value)
    if _is_deeper(fields, DEEPEST):
        raise ExternalAgentFailed(f"its answer is nested deeper than {DEEPEST} levels")
    return fields


def _reason(body: bytes) -> str:
    try:
        return sentence_of(json_object(body))
    except ExternalAgentFailed:
        return ""


def sentence_of(said: _Object) -> str:
    """What an error body says, however it says it."""
    error = said.get("error")
    for text in (_text(_object(error), "message"), error, said.get("detail"), said.get("message")):
        if isinstance(text, str) and text:
            return f": {' '.join(sanitise(text).split())[:300]}"
    return ""


def _joined(known: list[object], more: list[object]) -> list[object]:
    """The parts of an artifact and of its next chunk; a text goes on where the text before it ended."""
    if known and more:
        last, first = _object(known[-1]), _object(more[0])
        if isinstance(last.get("text"), str) and isinstance(first.get("text"), str):
            return [*known[:-1], {**last, "text": last["text"] + first["text"]}, *more[1:]]
    return [*known, *more]


def _parts_text(holder: Mapping[str, Any]) -> str:
    texts = (_text(_object(part), "text") for part in _list(holder.get("parts")))
    return sanitise("\n".join(filter(None, texts)))


def _is_deeper(value: object, levels: int) -> bool:
    level: list[object] = [value]
    for _ in range(levels):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: object) -> Iterable[object]:
    return cast("dict[str, object]", value).values() if isinstance(value, dict) else _list(value)


def _object(value: object) -> _Object:
    return cast("_Object", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


Fields = Mapping[str, Any]


def parts_of(holder: Fields) -> tuple[Part, ...]:
    """The parts of a message or an artifact."""
    given = holder.get("parts")
    items = cast("list[object]", given) if isinstance(given, list) else []
    return tuple(part for item in items if (part := _part(fields_of(item))) is not None)


def respelt(said: Any) -> Any:
    """What an agent says in REST of 0.3, in the words of 1.0: its messages have `content`, and its data a wrapping."""
    if isinstance(said, list):
        return [respelt(item) for item in cast("list[object]", said)]
    if not isinstance(said, dict):
        return said
    fields = cast("dict[str, Any]", said)
    return dict(_respelt_field(key, value) for key, value in fields.items())


def _respelt_field(key: str, value: Any) -> tuple[str, Any]:
    if key in ("parts", "content") and isinstance(value, list):
        return "parts", [_respelt_part(part) for part in cast("list[object]", value)]
    return key, value if key == "metadata" else respelt(value)


def _respelt_part(part: Any) -> Any:
    data = fields_of(fields_of(part).get("data"))
    return {**part, "data": data["data"]} if "data" in data else part


def artifact_of(fields: Fields, number: int) -> Artifact | None:
    """An artifact; None for one without anything in it. One without an id is known by its number."""
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
    """The id of an artifact, if it has one."""
    return text_of(fields, "artifactId") or text_of(fields, "artifact_id")


def fields_of(value: object) -> Fields:
    """A JSON object, or an empty one in place of anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def text_of(fields: Fields, key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


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
    """Base64 in either alphabet, with or without padding."""
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True) if text else None
    except (binascii.Error, ValueError):
        return None
