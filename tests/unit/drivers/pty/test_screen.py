"""The screen behind its lock: nothing is lost before the emulator is there, and a viewer misses nothing."""

from __future__ import annotations

import threading

from synapse.drivers.pty.screen import LockedScreen

MEGABYTE = 1024 * 1024


def test_the_first_bytes_are_kept_for_the_emulator() -> None:
    screen = LockedScreen(40, 6)
    screen.feed(b"hello")
    assert screen.picture() is None
    assert screen.history(10) == ()
    assert screen.take_replies() == b""
    assert screen.redraw() == b"hello"

    screen.load()

    picture = screen.picture()
    assert picture is not None
    assert picture.lines[0] == "hello"


def test_queries_in_the_first_bytes_are_answered_once_the_emulator_is_loaded() -> None:
    screen = LockedScreen(40, 6)
    screen.feed(b"\x1b[6n")
    screen.load()

    assert screen.take_replies() == b"\x1b[1;1R"
    assert screen.take_replies() == b""


def test_a_flood_of_output_waits_for_the_emulator() -> None:
    screen = LockedScreen(40, 6)
    screen.feed(b"x" * (MEGABYTE + 1))
    feeding = threading.Thread(target=screen.feed, args=(b"\r\nlast",))
    feeding.start()
    feeding.join(0.05)
    assert feeding.is_alive()

    screen.load()
    feeding.join(5)

    picture = screen.picture()
    assert picture is not None
    assert "last" in picture.lines


def test_a_resize_before_the_emulator_is_loaded_counts() -> None:
    screen = LockedScreen(40, 6)
    screen.resize(20, 5)
    screen.load()

    picture = screen.picture()
    assert picture is not None
    assert (picture.columns, picture.rows) == screen.size == (20, 5)


def test_a_picture_is_made_once_until_something_changes() -> None:
    screen = LockedScreen(40, 6)
    screen.load()
    screen.feed(b"one")
    first, again = screen.picture(), screen.picture()
    screen.feed(b"two")

    assert first is again
    assert screen.picture() is not first


def test_a_viewer_gets_a_picture_and_then_every_byte_until_it_leaves() -> None:
    screen = LockedScreen(40, 6)
    screen.load()
    screen.feed(b"before")
    seen = bytearray()

    def receive(data: bytes) -> None:
        seen.extend(data)

    screen.watch(receive, lambda picture: seen.extend(b"[picture]") if b"before" in picture else None)
    screen.feed(b" after")
    screen.show_viewers(b" (a note)")
    screen.watch(receive, lambda picture: seen.extend(b"[again]"))
    screen.feed(b" once")
    screen.unwatch(receive)
    screen.feed(b" unseen")

    assert bytes(seen) == b"[picture] after (a note)[again] once"


def test_a_program_that_cleaned_up_leaves_nothing_to_undo() -> None:
    screen = LockedScreen(40, 6)
    screen.load()
    screen.feed(b"\x1b[?1049h\x1b[?2004h")
    left_on = screen.leaving_bytes()
    screen.feed(b"\x1b[?1049l")
    pasting = screen.leaving_bytes()
    screen.feed(b"\x1b[?2004l")

    assert b"\x1b[?1049l" in left_on
    assert b"\x1b[?2004l" in pasting
    assert b"\x1b[?1049l" not in pasting
    assert screen.leaving_bytes() == b""


def test_a_program_that_paints_in_frames_is_known_by_the_end_of_one() -> None:
    screen = LockedScreen(40, 6)
    screen.feed(b"plain\r\n")
    assert not screen.paints_frames

    screen.feed(b"\x1b[?2026hframe\x1b[?2026l\x1b[?25h")
    screen.feed(b"plain\r\n")

    assert screen.paints_frames
