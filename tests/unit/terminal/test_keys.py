"""Keys out of bytes, in the plain encodings and the two newer ones, and bytes that type a text safely."""

from __future__ import annotations

import pytest

from synapse.terminal.keys import Key, KeyKind, KeyParser, keystrokes
from tests.unit.terminal.scenes import line_profile, page_profile


def parsed(data: bytes) -> list[tuple[KeyKind, str]]:
    return [(key.kind, key.text) for key in KeyParser().feed(data)]


def only_key(data: bytes) -> Key:
    keys = KeyParser().feed(data)

    assert [key.raw for key in keys] == [data]
    return keys[0]


def test_a_run_of_text_is_one_key() -> None:
    assert parsed("@codex 設計を".encode()) == [(KeyKind.TEXT, "@codex 設計を")]


@pytest.mark.parametrize("data", [b"\r", b"\x1bOM", b"\x1b[13u", b"\x1b[13;1u", b"\x1b[57414u", b"\x1b[27;1;13~"])
def test_enter_is_known_in_every_encoding(data: bytes) -> None:
    assert only_key(data).kind is KeyKind.ENTER


@pytest.mark.parametrize("data", [b"\x1b[13;2u", b"\x1b[27;2;13~", b"\x1b\r", b"\n"])
def test_an_enter_that_begins_another_line_is_not_a_plain_enter(data: bytes) -> None:
    assert only_key(data).kind is KeyKind.OTHER


@pytest.mark.parametrize("data", [b"\x15", b"\x1b[117;5u", b"\x1b[27;5;117~", b"\x1b[117;69u"])
def test_ctrl_u_is_known_in_every_encoding_also_with_caps_lock(data: bytes) -> None:
    assert only_key(data) == Key(KeyKind.CONTROL, data, "u")


@pytest.mark.parametrize("data", [b"\x7f", b"\x08", b"\x1b[127u", b"\x1b[27;1;127~"])
def test_backspace_is_known_in_every_encoding(data: bytes) -> None:
    assert only_key(data).kind is KeyKind.BACKSPACE


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x1b[C", KeyKind.RIGHT),
        (b"\x1bOD", KeyKind.LEFT),
        (b"\x1b[1;1D", KeyKind.LEFT),
        (b"\x1b[H", KeyKind.HOME),
        (b"\x1b[1~", KeyKind.HOME),
        (b"\x1bOF", KeyKind.END),
        (b"\x1b[8~", KeyKind.END),
        (b"\x1b[3~", KeyKind.DELETE),
    ],
)
def test_moving_keys_are_known(data: bytes, kind: KeyKind) -> None:
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
def test_a_key_that_may_do_anything_is_other(data: bytes) -> None:
    assert only_key(data).kind is KeyKind.OTHER


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
    assert only_key(data).kind is KeyKind.REPORT


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
    assert only_key(data).kind is KeyKind.NEUTRAL


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
    assert only_key(data) == Key(KeyKind.TEXT, data, text)


def test_a_paste_is_text_between_two_marks() -> None:
    assert parsed(b"\x1b[200~one\r\ntwo\x1b[201~x") == [
        (KeyKind.NEUTRAL, ""),
        (KeyKind.PASTED, "one\r\ntwo"),
        (KeyKind.NEUTRAL, ""),
        (KeyKind.TEXT, "x"),
    ]


def test_escape_sequences_inside_a_paste_are_text() -> None:
    assert parsed(b"\x1b[200~\x1b[A\x1b[201~") == [
        (KeyKind.NEUTRAL, ""),
        (KeyKind.PASTED, "\x1b[A"),
        (KeyKind.NEUTRAL, ""),
    ]


def test_a_lone_escape_waits_until_nothing_more_comes() -> None:
    parser = KeyParser()

    assert parser.feed(b"\x1b") == []
    assert parser.flush() == [Key(KeyKind.OTHER, b"\x1b")]
    assert parser.flush() == []


def test_two_escapes_are_two_keys() -> None:
    parser = KeyParser()

    assert parser.feed(b"\x1b\x1b[C") == [Key(KeyKind.OTHER, b"\x1b"), Key(KeyKind.RIGHT, b"\x1b[C")]


def test_half_a_character_waits_for_its_other_half() -> None:
    parser = KeyParser()

    assert parser.feed(b"a\xe3\x81") == [Key(KeyKind.TEXT, b"a", "a")]
    assert parser.feed(b"\x82") == [Key(KeyKind.TEXT, "あ".encode(), "あ")]


def test_bytes_that_are_no_text_are_kept_as_other() -> None:
    assert parsed(b"\xe3\x81\r") == [(KeyKind.OTHER, ""), (KeyKind.ENTER, "")]


def test_a_report_that_never_ends_does_not_swallow_keys_for_ever() -> None:
    parser = KeyParser()
    keys = [key for number in range(5000) for key in parser.feed(b"\x1b]x" if number == 0 else b"a")]

    assert keys[0] == Key(KeyKind.OTHER, b"\x1b")
    assert parser.pending == b""


def test_a_sequence_of_absurd_length_is_given_up() -> None:
    keys = KeyParser().feed(b"\x1b[" + b"1" * 100 + b"u")

    assert keys[0].kind is KeyKind.OTHER
    assert b"".join(key.raw for key in keys) == b"\x1b[" + b"1" * 100 + b"u"


def test_a_control_with_no_other_meaning_is_ctrl_and_its_letter() -> None:
    assert parsed(b"\x1d\x03") == [(KeyKind.CONTROL, "]"), (KeyKind.CONTROL, "c")]


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


def test_a_program_that_takes_pastes_gets_one_paste() -> None:
    keys = keystrokes("one\ntwo\tthree", page_profile(), bracketed_paste=True)

    assert keys.data == b"\x1b[200~one\ntwo\tthree\x1b[201~"
    assert keys.shown == "one\ntwo\tthree"


def test_a_line_program_that_takes_pastes_gets_one_too() -> None:
    assert keystrokes("one\ntwo", line_profile(), bracketed_paste=True).data == b"\x1b[200~one\ntwo\x1b[201~"


def test_a_line_program_gets_one_line_without_tabs() -> None:
    keys = keystrokes("one\n  two\tthree\n", line_profile(), bracketed_paste=False)

    assert keys.data == b"one two three"


def test_the_profile_names_the_replacement_of_a_line_break() -> None:
    profile = line_profile(typing={"newline": " / "})

    assert keystrokes("one\ntwo", profile, bracketed_paste=False).shown == "one / two"


@pytest.mark.parametrize("text", ["see @codex", "run /model", "@codex", "fix #12", "use $skill"])
def test_a_text_that_would_open_a_popup_ends_with_a_blank(text: str) -> None:
    assert keystrokes(text, page_profile(), bracketed_paste=True).data == f"\x1b[200~{text} \x1b[201~".encode()


@pytest.mark.parametrize("text", ["mail me@example.org", "done.", "and/or", "see @codex please"])
def test_other_texts_are_typed_as_they_are(text: str) -> None:
    assert keystrokes(text, page_profile(), bracketed_paste=True).shown == text


@pytest.mark.parametrize(
    "hostile",
    ["a\x1b[201~\rrm -rf", "a\x1b]0;t\x07b", "a\x00b\x7f", "a\rb", "a\x9b201~b", "a\u202eb", "\x15\x03\x04a"],
)
@pytest.mark.parametrize("pastes", [True, False])
def test_nothing_in_a_text_acts_on_the_terminal(hostile: str, pastes: bool) -> None:
    data = keystrokes(hostile, page_profile() if pastes else line_profile(), bracketed_paste=pastes).data
    inner = data.removeprefix(b"\x1b[200~").removesuffix(b"\x1b[201~").decode()

    assert not [char for char in inner if (char < " " and char not in "\n\t") or "\x7f" <= char <= "\x9f"]
    assert "\u202e" not in inner
