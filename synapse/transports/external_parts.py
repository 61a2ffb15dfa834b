"""From the parts and artifacts of external agents, in any of the protocols, to ours. Pure; what makes no sense is out.

1.0        {"text"} {"raw"} {"url"} {"data"}, with `filename` and `mediaType`
0.3, ours  {"text"} {"file": {"bytes" or "uri"}} {"data"}, under a tag
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, cast

from synapse.core.message import Artifact, DataPart, FilePart, Part, TextPart

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
