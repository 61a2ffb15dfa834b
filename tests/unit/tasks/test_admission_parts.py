"""Which parts an agent accepts, and how a repeated message is recognised."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

import pytest

from synapse.core.errors import UnsupportedMediaType
from synapse.core.message import DataPart, FilePart, Part, TextPart
from synapse.tasks.admission import ANYTHING, MODES, TEXT, Acceptance, message_digest, shown_modes
from tests.fakes.harness import say

STRICT = Acceptance(media_types=MODES)
REPEATABLE = Acceptance(repeatable_ids=re.compile(r"\Atck-"))


@pytest.mark.parametrize(
    "part",
    [
        TextPart(text="plain"),
        TextPart(text="named", media_type="Text/Plain; charset=utf-8"),
        DataPart(data={"k": 1}, media_type="application/json"),
        FilePart(content=b"x"),
        FilePart(url="https://example.com/x", media_type="application/octet-stream"),
    ],
)
def test_a_strict_agent_takes_the_types_of_its_card_and_what_names_none(part: Part) -> None:
    STRICT.check(replace(say("hello"), parts=(part,)))


def test_a_strict_agent_refuses_a_part_of_another_type_and_names_its_own() -> None:
    message = replace(say("hello"), parts=(TextPart(text="a"), FilePart(content=b"x", media_type="image/x-other")))

    ANYTHING.check(message)
    with pytest.raises(UnsupportedMediaType, match="image/x-other") as refused:
        STRICT.check(message)
    assert refused.value.hint == "it accepts text/plain, application/json, application/octet-stream"


@pytest.mark.parametrize(
    "part",
    [
        DataPart(data={"k": 1}),
        FilePart(content=b"x"),
        FilePart(url="https://example.com/x"),
        TextPart(text="# a", media_type="text/markdown"),
    ],
)
def test_a_part_that_names_no_type_has_the_default_of_its_kind(part: Part) -> None:
    only_text = Acceptance(media_types=TEXT)

    only_text.check(say("hello"))
    with pytest.raises(UnsupportedMediaType) as refused:
        only_text.check(replace(say("hello"), parts=(TextPart(text="a"), part)))
    assert refused.value.hint == "it accepts text/plain"


def test_a_card_lists_any_type_only_for_an_agent_that_accepts_all() -> None:
    assert shown_modes(STRICT.as_text.split()) == MODES
    assert shown_modes(ANYTHING.as_text.split()) == (*MODES, "*/*")


def test_a_message_is_recognised_by_its_content_unless_its_id_is_repeatable() -> None:
    assert ANYTHING.digest(say("hello", "tck-1")) == ANYTHING.digest(say("hello", "tck-1")) != ""
    assert ANYTHING.digest(say("hello", "tck-1")) != ANYTHING.digest(say("other", "tck-1"))
    assert REPEATABLE.digest(say("hello", "tck-1")) == ""
    assert REPEATABLE.digest(say("hello", "my-tck-1")) == ANYTHING.digest(say("hello", "my-tck-1"))


@pytest.mark.parametrize(
    "parts",
    [
        (TextPart(text="hello"),),
        (TextPart(text='it\'s "quoted"\n\\ \udc80 \N{GRINNING FACE}'),),
        (TextPart(text=""),),
        (TextPart(text="named", name="n"),),
        (TextPart(text="a"), TextPart(text="b")),
        (DataPart(data={"k": [1, None]}),),
        (FilePart(content=b"x", name="f"),),
    ],
)
def test_a_digest_is_the_same_in_every_version(parts: tuple[Part, ...]) -> None:
    message = replace(say("hello"), parts=parts)

    said = repr((message.role, message.parts)).encode(errors="surrogatepass")
    assert message_digest(message) == hashlib.sha256(said).hexdigest()[:32]
