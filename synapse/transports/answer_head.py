"""The head of an answer as bytes. What is the same in nearly every answer is made once a second, with its date."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final

HeaderLines = Iterable[tuple[bytes, bytes]]

WITHOUT_BODY: Final = frozenset({204, 304})
"""Statuses whose answers have no body, nor headers about one."""

_BAD_NAME: Final = re.compile(rb'[\x00-\x20\x7f-\xff()<>@,;:\\"/\[\]?={}]')
_BAD_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def status_line(status: int) -> bytes:
    """The first line of an answer."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode("ascii"))


def header_lines(headers: HeaderLines) -> bytes:
    """Headers as they are written.

    Raises:
        ValueError: one of them could be read as something else.
    """
    lines: list[bytes] = []
    for name, value in headers:
        if not name or _BAD_NAME.search(name) or _BAD_VALUE.search(value):
            raise ValueError(f"not a header: {name[:80]!r}")
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)


class Openings:
    """The beginnings of plain answers: all that stands before the length of the body."""

    __slots__ = ("_common", "_made", "_made_with")

    def __init__(self, common: Callable[[], list[tuple[bytes, bytes]]]) -> None:
        """`common` gives the headers of all answers: another list when they have changed."""
        self._common = common
        self._made_with: list[tuple[bytes, bytes]] = []
        self._made: dict[tuple[int, bytes], bytes] = {}

    def plain(self, status: int, media_type: bytes) -> bytes:
        """The beginning of an answer that has only a body."""
        if self._common() is not self._made_with:
            self._made_with = self._common()
            self._made.clear()
        key = (status, media_type)
        opening = self._made.get(key)
        if opening is None:
            lines = header_lines([*self._made_with, (b"content-type", media_type)])
            opening = self._made[key] = status_line(status) + lines + b"content-length: "
        return opening

    def of(self, status: int, headers: HeaderLines) -> bytes:
        """The beginning of any other answer, with its headers and without the empty line behind them."""
        return status_line(status) + header_lines([*self._common(), *headers])
