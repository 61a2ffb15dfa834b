"""Decodes the parts and artifacts of all protocols."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.message import Artifact, DataPart, FilePart, Part, TextPart
from synapse.external.decode import artifact_of, parts_of, to_1_0


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"text": "a", "metadata": {"n": 1}}, TextPart(text="a", metadata={"n": 1})),
        ({"kind": "text", "text": ""}, TextPart(text="")),
        ({"raw": "AAE=", "filename": "f"}, FilePart(content=b"\x00\x01", name="f")),
        ({"raw": "_-8"}, FilePart(content=b"\xff\xef")),
        ({"url": "http://x", "mediaType": "a/b"}, FilePart(url="http://x", media_type="a/b")),
        ({"kind": "file", "file": {"bytes": "AAE=", "name": "f"}}, FilePart(content=b"\x00\x01", name="f")),
        ({"type": "file", "file": {"uri": "http://x", "mimeType": "a/b"}}, FilePart(url="http://x", media_type="a/b")),
        ({"data": None}, DataPart(data=None)),
        ({"kind": "data", "data": {"n": [1]}}, DataPart(data={"n": [1]})),
    ],
)
def test_a_part_is_read(given: dict[str, Any], part: Part) -> None:
    assert parts_of({"parts": [given]}) == (part,)


@pytest.mark.parametrize("given", [None, 3, "x", [None, 3, {}, {"text": 3}, {"raw": "!"}, {"file": 3}, {"url": ""}]])
def test_invalid_parts_are_left_out(given: object) -> None:
    assert parts_of({"parts": given}) == ()


def test_an_artifact_has_its_own_id_or_its_number() -> None:
    fields = {"name": "n", "description": "d", "parts": [{"text": "a"}], "metadata": {"k": 1}}
    read = Artifact(artifact_id="x", parts=(TextPart(text="a"),), name="n", description="d", metadata={"k": 1})

    assert artifact_of({"artifactId": "x", **fields}, 0) == read
    assert artifact_of({"artifact_id": "x", **fields}, 0) == read
    unnamed = artifact_of(fields, 3)
    assert unnamed is not None
    assert unnamed.artifact_id == "artifact-3"
    assert artifact_of({"artifactId": "x", "parts": []}, 0) is None


def test_rest_of_0_3_is_converted_to_1_0() -> None:
    said = {
        "message": {
            "content": [{"text": "a"}, {"data": {"data": {"data": 1}}}, {"file": {"fileWithUri": "http://x"}}],
            "metadata": {"content": ["mine"]},
        }
    }

    message = to_1_0(said)["message"]

    assert parts_of(message) == (TextPart(text="a"), DataPart(data={"data": 1}), FilePart(url="http://x"))
    assert message["metadata"] == {"content": ["mine"]}
