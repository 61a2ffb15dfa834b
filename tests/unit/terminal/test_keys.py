"""Keys out of bytes: the plain encodings and the two newer ones."""

from __future__ import annotations

import pytest

from synapse.terminal.keys import Key, KeyParser, Kind


def parsed(data: bytes) -> list[tuple[Kind, str]]:
    return [(key.kind, key.text) for key in KeyParser().feed(data)]


def only_key(data: bytes) -> Key:
    keys = KeyParser().feed(data)

    assert [key.raw for key in keys] == [data]
    return keys[0]


def test_a_run_of_text_is_one_key() -> None:
    assert parsed("@codex 設計を".encode()) == [(Kind.TEXT, "@codex 設計を")]


@pytest.mark.parametrize("data", [b"\r", b"\x1bOM", b"\x1b[13u", b"\x1b[13;1u", b"\x1b[57414u", b"\x1b[27;1;13~"])
def test_enter_is_known_in_every_encoding(data: bytes) -> None:
    assert only_key(data).kind is Kind.ENTER


@pytest.mark.parametrize("data", [b"\x1b[13;2u", b"\x1b[27;2;13~", b"\x1b\r", b"\n"])
def test_an_enter_that_begins_another_line_is_not_a_plain_enter(data: bytes) -> None:
    assert only_key(data).kind is Kind.OTHER


@pytest.mark.parametrize("data", [b"\x15", b"\x1b[117;5u", b"\x1b[27;5;117~", b"\x1b[117;69u"])
def test_ctrl_u_is_known_in_every_encoding_also_with_caps_lock(data: bytes) -> None:
    assert only_key(data) == Key(Kind.CONTROL, data, "u")


@pytest.mark.parametrize("data", [b"\x7f", b"\x08", b"\x1b[127u", b"\x1b[27;1;127~"])
def test_backspace_is_known_in_every_encoding(data: bytes) -> None:
    assert only_key(data).kind is Kind.BACKSPACE


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x1b[C", Kind.RIGHT),
        (b"\x1bOD", Kind.LEFT),
        (b"\x1b[1;1D", Kind.LEFT),
        (b"\x1b[H", Kind.HOME),
        (b"\x1b[1~", Kind.HOME),
        (b"\x1bOF", Kind.END),
        (b"\x1b[8~", Kind.END),
        (b"\x1b[3~", Kind.DELETE),
    ],
)
def test_moving_keys_are_known(data: bytes, kind: Kind) -> None:
    assert only_key(data).kind is kind


@pytest.mark.parametrize(
    "data",
    [
        b"\t",
        b"\x1b[A",
        b"\x1b[1;5D",
        b"\x1b[3;5~",
        b"\x1b[15~",
        b"\x1bb",
        b"\x1b\x7f",
        "\x1bé".encode(),
        b"\x1b\xff",
        b"\x1b[97;3u",
        b"\x1b[57358u",
        b"\x1b[27u",
        b"\x1b[<0;3;4M",
        b"\x1b[M !!",
        b"\x1b[1<2u",
        b"\xff",
        b"\x1b[200;2~",
    ],
)
def test_what_may_do_anything_is_other(data: bytes) -> None:
    assert only_key(data).kind is Kind.OTHER


@pytest.mark.parametrize(
    "data",
    [
        b"\x1b[?62;22c",
        b"\x1b[24;80R",
        b"\x1b[?2026;2$y",
        b"\x1b[?1u",
        b"\x1b]11;rgb:0000/0000/0000\x1b\\",
        b"\x1b]11;rgb:0000/0000/0000\x07",
        b"\x1bP>|term 1.0\x1b\\",
    ],
)
def test_an_answer_of_the_terminal_is_no_key(data: bytes) -> None:
    assert only_key(data).kind is Kind.REPORT


@pytest.mark.parametrize(
    "data",
    [
        b"\x1b[I",
        b"\x1b[O",
        b"\x1b[97;1:3u",
        b"\x1b[1;1:3C",
        b"\x1b[57441;2u",
        b"\x1b[<35;3;4M",
        b"\x1b[<64;3;4M",
    ],
)
def test_focus_releases_and_the_moving_mouse_change_no_line(data: bytes) -> None:
    assert only_key(data).kind is Kind.NEUTRAL


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[97u", "a"),
        (b"\x1b[97;2u", "A"),
        (b"\x1b[50:64;2u", "@"),
        (b"\x1b[97;;97u", "a"),
        (b"\x1b[50;2;64u", "@"),
        (b"\x1b[64;65u", "@"),
        (b"\x1b[27;1;64~", "@"),
    ],
)
def test_letters_in_newer_encodings_are_text(data: bytes, text: str) -> None:
    assert only_key(data) == Key(Kind.TEXT, data, text)


def test_a_paste_is_text_between_two_marks() -> None:
    assert parsed(b"\x1b[200~one\r\ntwo\x1b[201~x") == [
        (Kind.NEUTRAL, ""),
        (Kind.PASTED, "one\r\ntwo"),
        (Kind.NEUTRAL, ""),
        (Kind.TEXT, "x"),
    ]


def test_escape_sequences_inside_a_paste_are_text() -> None:
    assert parsed(b"\x1b[200~\x1b[A\x1b[201~") == [(Kind.NEUTRAL, ""), (Kind.PASTED, "\x1b[A"), (Kind.NEUTRAL, "")]


def test_a_lone_escape_waits_until_nothing_more_comes() -> None:
    parser = KeyParser()

    assert parser.feed(b"\x1b") == []
    assert parser.flush() == [Key(Kind.OTHER, b"\x1b")]
    assert parser.flush() == []


def test_two_escapes_are_two_keys() -> None:
    parser = KeyParser()

    assert parser.feed(b"\x1b\x1b[C") == [Key(Kind.OTHER, b"\x1b"), Key(Kind.RIGHT, b"\x1b[C")]


def test_half_a_character_waits_for_its_other_half() -> None:
    parser = KeyParser()

    assert parser.feed(b"a\xe3\x81") == [Key(Kind.TEXT, b"a", "a")]
    assert parser.feed(b"\x82") == [Key(Kind.TEXT, "あ".encode(), "あ")]


def test_bytes_that_are_no_text_are_kept_as_other() -> None:
    assert parsed(b"\xe3\x81\r") == [(Kind.OTHER, ""), (Kind.ENTER, "")]


def test_a_report_that_never_ends_does_not_swallow_keys_for_ever() -> None:
    parser = KeyParser()
    keys = [key for number in range(5000) for key in parser.feed(b"\x1b]x" if number == 0 else b"a")]

    assert keys[0] == Key(Kind.OTHER, b"\x1b")
    assert parser.pending == b""


def test_a_sequence_of_absurd_length_is_given_up() -> None:
    keys = KeyParser().feed(b"\x1b[" + b"1" * 100 + b"u")

    assert keys[0].kind is Kind.OTHER
    assert b"".join(key.raw for key in keys) == b"\x1b[" + b"1" * 100 + b"u"


def test_a_control_with_no_other_meaning_is_ctrl_and_its_letter() -> None:
    assert parsed(b"\x1d\x03") == [(Kind.CONTROL, "]"), (Kind.CONTROL, "c")]


@pytest.mark.parametrize(
    "data",
    [
        b"\x1b[200~one \xe3\x81\x82 two\x1b[20x\x1b[201~\r",
        "\x1bé\x1bあ\x1b👩".encode(),
        b"\x1bO1\x1bOC",
        b"\x1b[12 \x01",
        b"\x1b[M\x1b[A",
    ],
)
def test_keys_that_come_byte_by_byte_are_the_same(data: bytes) -> None:
    slow = KeyParser()
    keys = [key for byte in data for key in slow.feed(bytes((byte,)))]

    together = "".join(key.text for key in keys)
    assert b"".join(key.raw for key in keys) == data
    assert together == "".join(key.text for key in KeyParser().feed(data))
    assert {key.kind for key in keys} == {key.kind for key in KeyParser().feed(data)}
