"""Parts of messages: how text, images, files and custom types are decoded and encoded."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.errors import InvalidField
from synapse.core.message import DataPart, FilePart, Part, TextPart
from synapse.dialects.hub.parts import PartShape, decode_part, part_object

PNG = {"mimeType": "image/png", "data": "aGk="}


@pytest.mark.parametrize(
    ("wire", "part"),
    [
        ({"type": "text", "content": "hi"}, TextPart(text="hi")),
        ({"type": "text", "content": "hi", "metadata": {"a": 1}}, TextPart(text="hi", metadata={"a": 1})),
        ({"type": "image", "content": PNG}, FilePart(content=b"hi", media_type="image/png")),
        (
            {"type": "image", "content": {"url": "https://x/a"}},
            FilePart(url="https://x/a", metadata={"type": "image"}),
        ),
        (
            {"type": "file", "content": {"name": "a.pdf", "mimeType": "application/pdf", "url": "https://x"}},
            FilePart(url="https://x", name="a.pdf", media_type="application/pdf"),
        ),
        ({"type": "file", "content": {"data": ""}}, FilePart(content=b"")),
        ({"type": "custom", "content": {"a": 1}}, DataPart(data={"a": 1}, metadata={"type": "custom"})),
        ({"type": "weather", "content": None}, DataPart(data=None, metadata={"type": "weather"})),
        (
            {"type": "weather", "content": [1], "metadata": {"unit": "F"}},
            DataPart(data=[1], metadata={"unit": "F", "type": "weather"}),
        ),
    ],
)
def test_a_part_survives_decoding_and_encoding(wire: dict[str, Any], part: Part) -> None:
    assert decode_part(PartShape(**wire), 0) == part
    assert part_object(part) == wire


@pytest.mark.parametrize(
    ("content", "metadata", "part"),
    [
        ("data:image/png;base64,aGk=", {}, FilePart(content=b"hi", media_type="image/png")),
        ("https://x/a.png", {"mimeType": "image/png"}, FilePart(url="https://x/a.png", media_type="image/png")),
        ("aGk=", {"mimeType": "image/png", "name": "a"}, FilePart(content=b"hi", media_type="image/png", name="a")),
        ("aGk=", {"mimeType": 3, "k": "v"}, FilePart(content=b"hi", metadata={"k": "v", "type": "image"})),
    ],
)
def test_an_image_may_be_one_string(content: str, metadata: dict[str, Any], part: FilePart) -> None:
    assert decode_part(PartShape(type="image", content=content, metadata=metadata), 0) == part


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("text", None),
        ("text", ["hi"]),
        ("file", 3),
        ("file", {}),
        ("file", {"data": "aGk=", "url": "https://x"}),
        ("file", {"data": "not base64!"}),
        ("file", "not base64!"),
        ("file", "data:text/plain,hello"),
        ("file", "data:text/plain;base64,?"),
        ("image", {"mimeType": 3, "data": "aGk="}),
        ("file", "é" * 4),
    ],
)
def test_invalid_content_is_refused_with_its_place(kind: str, content: Any) -> None:
    with pytest.raises(InvalidField) as refused:
        decode_part(PartShape(type=kind, content=content), 2)

    assert refused.value.field.startswith("message[2].content")


@pytest.mark.parametrize("word", ["text", "image", "file", 3])
def test_data_of_other_dialects_cannot_look_like_something_else(word: Any) -> None:
    assert part_object(DataPart(data=1, metadata={"type": word}))["type"] == "custom"
