"""Every byte that a person types is in exactly one key, and the keys do not depend on how the bytes were cut."""

from __future__ import annotations

import itertools
import os
import termios
from collections.abc import Generator
from contextlib import contextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from synapse.drivers.pty.tty import line_keys
from synapse.terminal.keys import Key, KeyKind, KeyParser
from synapse.terminal.line_editor import Draft, PersonDraft
from synapse.terminal.mention import Forward, MentionLine

PIECES = st.one_of(
    st.sampled_from(
        [
            b"\r",
            b"\x1b[13u",
            b"\x1b[13;2u",
            b"\x1b[117;5u",
            b"\x1b[27;5;117~",
            b"\x1b[200~",
            b"\x1b[201~",
            b"\x1b[D",
            b"\x1bOC",
            b"\x1b",
            b"\x7f",
            b"\x15",
            b"\x1b]11;rgb:0/0/0\x1b\\",
            b"\x1b[<35;1;1M",
            b"\x1b[M",
            "設計 é 👩\u200d🚀".encode(),
            b"@codex hi",
        ]
    ),
    st.binary(max_size=6),
    st.text(max_size=6).map(lambda text: text.encode(errors="surrogatepass")),
)
TYPED = st.lists(PIECES, max_size=12).map(b"".join)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in at)})
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


def joined(keys: list[Key]) -> list[Key]:
    """Join runs of text, which may come in pieces."""
    whole: list[Key] = []
    for key in keys:
        if whole and key.kind is whole[-1].kind and is_run(key) and is_run(whole[-1]):
            whole[-1] = Key(key.kind, whole[-1].raw + key.raw, whole[-1].text + key.text)
        else:
            whole.append(key)
    return whole


def is_run(key: Key) -> bool:
    """Return whether the key is a run of text; a letter in one of the newer encodings is a key of its own."""
    return key.kind is KeyKind.PASTED or (key.kind is KeyKind.TEXT and not key.raw.startswith(b"\x1b"))


@given(TYPED, st.lists(st.integers(min_value=0), max_size=12))
def test_every_byte_is_in_one_key(data: bytes, at: list[int]) -> None:
    parser = KeyParser()
    keys = [key for chunk in cut(data, at) for key in parser.feed(chunk)]

    assert b"".join(key.raw for key in keys) + parser.pending == data
    assert all(key.raw for key in keys)


@given(TYPED, st.lists(st.integers(min_value=0), max_size=12))
def test_the_keys_do_not_depend_on_the_cut(data: bytes, at: list[int]) -> None:
    in_pieces, at_once = KeyParser(), KeyParser()
    keys = [key for chunk in cut(data, at) for key in in_pieces.feed(chunk)]

    assert joined(keys) == joined(at_once.feed(data))
    assert in_pieces.pending == at_once.pending


@given(TYPED, st.lists(st.integers(min_value=0), max_size=12))
def test_without_a_known_name_every_byte_passes_in_order(data: bytes, at: list[int]) -> None:
    line = MentionLine(lambda name: "", b"\x15")
    passed = bytearray()
    for number, chunk in enumerate(cut(data, at)):
        for action in line.typed(chunk, lambda: "", number * 0.01):
            assert isinstance(action, Forward)
            passed += action.data
    for action in line.look("", 1e6):
        assert isinstance(action, Forward)
        passed += action.data

    assert bytes(passed) == data


@given(TYPED, st.lists(st.integers(min_value=0), max_size=12))
def test_when_the_screen_never_agrees_every_byte_passes_in_order(data: bytes, at: list[int]) -> None:
    line = MentionLine(lambda name: name, b"\x15")
    passed = bytearray()
    now = 0.0
    for chunk in cut(data, at):
        for action in line.typed(chunk, lambda: "", now):
            assert isinstance(action, Forward)
            passed += action.data
    while line.deadline is not None:
        now = line.deadline
        for action in line.look("something else", now):
            assert isinstance(action, Forward)
            passed += action.data

    assert bytes(passed) == data


@contextmanager
def cooked_terminal(*, utf8: bool, flags: int) -> Generator[tuple[int, int], None, None]:
    """Open a terminal whose lines the kernel edits; yield its two sides."""
    controlling, program = os.openpty()
    try:
        attributes = termios.tcgetattr(program)
        attributes[0] = attributes[0] | 0x4000 if utf8 else attributes[0] & ~0x4000
        attributes[3] = termios.ICANON | flags
        termios.tcsetattr(program, termios.TCSANOW, attributes)
        yield controlling, program
    finally:
        os.close(controlling)
        os.close(program)


LOCAL_FLAGS = st.sets(st.sampled_from([termios.ECHO, termios.ISIG, termios.IEXTEN, termios.NOFLSH])).map(sum)
LINE_EDITS = st.lists(
    st.one_of(
        PIECES,
        st.sampled_from(
            [b"\x7f", b"\x15", b"\x17", b"\x16", b"\x12", b"\x13", b"\x03", b"\x1a", b"\x04", b"\n", b"one two "]
        ),
    ),
    max_size=10,
).map(b"".join)


@settings(deadline=None)
@given(LINE_EDITS, st.booleans(), LOCAL_FLAGS, st.lists(st.integers(min_value=0), max_size=6))
def test_the_kernel_s_line_is_empty_when_we_say_so(data: bytes, utf8: bool, flags: int, at: list[int]) -> None:
    # A last Ctrl-V would make text of the line's end.
    data = data.rstrip(b"\x16")
    draft = PersonDraft()
    with cooked_terminal(utf8=utf8, flags=flags) as (controlling, program):
        for chunk in cut(data, at):
            draft.typed(chunk, line_keys(controlling))
        os.write(controlling, data + b"\nthe end\n")
        lines = [b""]
        while lines[-1] != b"the end\n":
            lines.append(os.read(program, 4096))

    assert (draft.state(kernel_edits=True, has_unread=bool) is Draft.NONE) == (lines[-2] == b"\n")
