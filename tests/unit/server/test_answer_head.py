"""The head of an answer: what could be read as something else is never written."""

from __future__ import annotations

import pytest

from synapse.server.http import Openings, header_lines, status_line


def test_a_status_has_its_phrase_and_an_unknown_one_has_none() -> None:
    assert status_line(404) == b"HTTP/1.1 404 Not Found\r\n"
    assert status_line(599) == b"HTTP/1.1 599 \r\n"


@pytest.mark.parametrize(
    "header",
    [
        (b"", b"x"),
        (b"a b", b"x"),
        (b"a:", b"x"),
        (b"a\r\nb", b"x"),
        (b"\xff", b"x"),
        (b"a", b"x\r\ny: z"),
        (b"a", b"\0"),
    ],
)
def test_what_is_no_header_is_refused(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="not a header"):
        header_lines([header])


def test_values_may_hold_tabs_and_bytes_beyond_ascii() -> None:
    assert header_lines([(b"a", b"b\tc\xe9")]) == b"a: b\tc\xe9\r\n"


def test_openings_are_made_again_when_what_they_have_in_common_changes() -> None:
    common = [[(b"date", b"today")], [(b"date", b"tomorrow")]]
    openings = Openings(lambda: common[0])

    today = openings.plain(200, b"application/json")
    assert openings.plain(200, b"application/json") is today
    common.pop(0)

    assert today == b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-type: application/json\r\ncontent-length: "
    assert openings.plain(200, b"application/json") == today.replace(b"today", b"tomorrow")
