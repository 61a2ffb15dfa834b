"""The verb `artifact`: a text, a file by its bytes or its address, data, whole or in chunks."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable
from typing import Any, Final, cast

from synapse.core.errors import InvalidScript
from synapse.core.message import Artifact, DataPart, FilePart, Part, TextPart
from synapse.drivers.scripted.fields import Fields, spaced
from synapse.drivers.scripted.steps import Hand, Step

_CONTENTS: Final = ("text", "bytes", "base64", "url", "data", "chunks")
ARTIFACT_OPTIONS: Final = (*_CONTENTS, "id", "description", "file", "media_type", "append", "last", "every")


def parse_artifact(fields: Fields) -> Iterable[Step]:
    """Return the steps that hand over one artifact.

    Raises InvalidScript.
    """
    contents = [key for key in _CONTENTS if key in fields]
    if len(contents) != 1:
        raise InvalidScript(f"{fields.where}: an artifact has exactly one of " + ", ".join(_CONTENTS))
    if contents == ["chunks"]:
        return _in_chunks(fields)
    fields.refuse("every", "it goes with `chunks`")
    append, last = fields.flag("append", default=False), fields.flag("last", default=True)
    return (Hand(artifact=_artifact(fields, _part(fields, contents[0])), append=append, last=last),)


def _in_chunks(fields: Fields) -> Iterable[Step]:
    fields.refuse("append", "`chunks` sets it for each chunk")
    fields.refuse("last", "`chunks` sets it for each chunk")
    texts = fields.texts("chunks")
    end = len(texts) - 1
    return spaced(
        [
            Hand(artifact=_artifact(fields, _chunk(fields, text)), append=index > 0, last=index == end)
            for index, text in enumerate(texts)
        ],
        fields,
    )


def _artifact(fields: Fields, part: Part) -> Artifact:
    name = fields.text("artifact")
    artifact_id = fields.text("id", name)
    return Artifact(artifact_id=artifact_id, name=name, description=fields.text("description", ""), parts=(part,))


def _part(fields: Fields, content: str) -> Part:
    name, media_type = fields.text("file", ""), fields.text("media_type", "")
    match content:
        case "text":
            return TextPart(text=fields.text("text"), name=name, media_type=media_type)
        case "bytes":
            return FilePart(content=fields.text("bytes").encode(), name=name, media_type=media_type)
        case "base64":
            return FilePart(content=_decoded(fields), name=name, media_type=media_type)
        case "url":
            return FilePart(url=fields.text("url"), name=name, media_type=media_type)
        case _:
            return DataPart(data=_as_json(fields.raw("data"), fields), name=name, media_type=media_type)


def _chunk(fields: Fields, text: str) -> Part:
    """A chunk of a file when there is a file name, else of a text."""
    name, media_type = fields.text("file", ""), fields.text("media_type", "")
    if name:
        return FilePart(content=text.encode(), name=name, media_type=media_type)
    return TextPart(text=text, media_type=media_type)


def _decoded(fields: Fields) -> bytes:
    try:
        return base64.b64decode(fields.text("base64"), validate=True)
    except binascii.Error as wrong:
        raise InvalidScript(f"{fields.where}: `base64` cannot be decoded: {wrong}") from wrong


def _as_json(value: object, fields: Fields) -> Any:
    """A TOML value as JSON has it; dates, infinity and not-a-number have no place there."""
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return {key: _as_json(item, fields) for key, item in table.items()}
    if isinstance(value, list):
        return [_as_json(item, fields) for item in cast("list[object]", value)]
    if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise InvalidScript(f"{fields.where}: `data` holds {value}, which JSON does not know", hint="write it as a text")
