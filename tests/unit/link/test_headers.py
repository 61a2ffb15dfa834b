"""A block of headers is read strictly: what a client sends may be made to hide what the server appends."""

from __future__ import annotations

import pytest

from synapse.link.nats_connection import read_headers

APPENDED = b"Nats-Stream: SYN_LOG\r\nNats-Subject: synapse.v1.log.evil\r\nNats-Sequence: 1\r\n\r\n"
"""The server writes it over the last two bytes of the block with which a message was stored."""


def test_the_headers_of_a_message_are_read() -> None:
    assert read_headers(b"NATS/1.0\r\nSynapse-Wire: 1\r\nNats-Msg-Id:a.b\r\n\r\n") == {
        "Synapse-Wire": "1",
        "Nats-Msg-Id": "a.b",
    }


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"NATS/1.0 503\r\n\r\n", {"Status": "503", "Description": ""}),
        (b"NATS/1.0 404 No Messages\r\n\r\n", {"Status": "404", "Description": "No Messages"}),
        (
            b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\n\r\n",
            {"Status": "100", "Description": "Idle Heartbeat", "Nats-Last-Consumer": "1"},
        ),
    ],
)
def test_a_status_of_the_server_is_read(block: bytes, expected: dict[str, str]) -> None:
    assert read_headers(block) == expected


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"NATS/1.0\r\nSynapse-Wire: 1\r\n",
        b"NATS/1.0\r\nSynapse-Wire: 1\r\nno header\r\n\r\n",
        b"NATS/1.0\r\nSynapse-Wire: 1\r\nsynapse-wire: 1\r\n\r\n",
        b"NATS/1.0\r\nSynapse-Wire : 1\r\n\r\n",
        b"NATS/1.0\r\nSynapse-Wire: 1\nX: y\r\n\r\n",
        b"NATS/1.0\r\nSynapse-Wire: 1\r\n X: y\r\n\r\n",
        b"NATS/1.0\r\nSynapse-Wire: 1\r\n\r\n" + APPENDED,
        b"HTTP/1.1\r\nSynapse-Wire: 1\r\n\r\n",
        b"NATS/1.0\r\nStatus: 503\r\nstatus: 1\r\n\r\n",
    ],
)
def test_a_block_with_one_wrong_line_has_no_headers(block: bytes) -> None:
    assert read_headers(block) == {}


def test_what_the_server_appends_is_seen_after_a_line_without_an_end() -> None:
    found = read_headers(b"NATS/1.0\r\nSynapse-Wire: 1\r\nX: y" + APPENDED)

    assert {"Nats-Subject", "Nats-Sequence"} <= found.keys()
