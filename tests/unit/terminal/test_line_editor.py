"""A person's half-typed line, judged by their keys."""

from __future__ import annotations

import pytest

from synapse.terminal.line_editor import Draft, LineKeys, PersonDraft

KERNEL = LineKeys(kill=frozenset(b"\x15\x03\x1a"))
KEYS_THAT_MAY_INSERT = {
    "up": b"\x1b[A",
    "down": b"\x1bOB",
    "tab": b"\t",
    "shift-tab": b"\x1b[Z",
    "page-up": b"\x1b[5~",
    "f5": b"\x1b[15~",
    "shift-left": b"\x1b[1;2D",
    "alt-dot": b"\x1b.",
    "ctrl-p": b"\x10",
    "ctrl-r": b"\x12",
    "ctrl-y": b"\x19",
    "mouse-click": b"\x1b[<0;5;5M",
    "old-mouse": b"\x1b[M !!",
}
KEYS_THAT_CANNOT = {
    "left": b"\x1b[D",
    "right": b"\x1b[C",
    "home": b"\x1b[H",
    "end": b"\x1b[F",
    "backspace": b"\x7f",
    "delete": b"\x1b[3~",
    "ctrl-a": b"\x01",
    "ctrl-d": b"\x04",
    "ctrl-e": b"\x05",
    "ctrl-k": b"\x0b",
    "ctrl-l": b"\x0c",
    "ctrl-u": b"\x15",
    "ctrl-w": b"\x17",
    "ctrl-z": b"\x1a",
    "focus": b"\x1b[I\x1b[O",
    "mouse-moved": b"\x1b[<35;5;5M",
    "wheel": b"\x1b[<64;5;5M",
    "empty-paste": b"\x1b[200~\x1b[201~",
    "report": b"\x1b[?1;2c",
    "shift-held": b"\x1b[57441u",
}


def after(keys: bytes, *, kernel: bool = False) -> Draft:
    """What the keys leave in an empty line, however they are cut."""
    draft = PersonDraft()
    for at in range(len(keys)):
        draft.typed(keys[at : at + 1], KERNEL if kernel else None)
    return state_of(draft, kernel=kernel)


def state_of(draft: PersonDraft, *, kernel: bool = False) -> Draft:
    return draft.state(kernel_edits=kernel, has_unread=lambda: False)


class TestProgramsThatEditTheirOwnLine:
    @pytest.mark.parametrize("keys", KEYS_THAT_CANNOT.values(), ids=KEYS_THAT_CANNOT)
    def test_a_key_that_puts_no_text_into_the_line_leaves_it_as_it_was(self, keys: bytes) -> None:
        assert after(keys) is Draft.NONE
        assert after(b"\x1b[A" + keys) is Draft.UNCERTAIN

    @pytest.mark.parametrize("keys", KEYS_THAT_MAY_INSERT.values(), ids=KEYS_THAT_MAY_INSERT)
    def test_a_key_that_may_put_text_into_the_line_leaves_it_uncertain(self, keys: bytes) -> None:
        assert after(keys) is Draft.UNCERTAIN
        assert after(b"text" + keys) is Draft.TYPED

    @pytest.mark.parametrize(
        "keys",
        [
            b"x", b"one\rtwo", b"ab\x7f", b"a\x1b[D", b"abc\x1a", b"abc\x04", b"\x1b[200~pasted\x1b[201~",
            b"\x1b[200~one\ntwo\x1b[201~", b"\x1b[200~one\n\x1b[201~",
        ],
    )  # fmt: skip
    def test_a_line_that_was_begun_is_typed(self, keys: bytes) -> None:
        assert after(keys) is Draft.TYPED

    @pytest.mark.parametrize(
        "keys",
        [b"", b"a line\r", b"a line\n", b"abc\x15", b"abc\x03", b"ab\x7f\x7f", b"\x1b[A\r", b"\x1b[A\x03", b"\x1b[13u"],
    )
    def test_a_line_that_was_ended_or_emptied_is_not(self, keys: bytes) -> None:
        assert after(keys) is Draft.NONE

    @pytest.mark.parametrize("erasing", [b"\x7f", b"\x15", b"\x17", b"\x0b"])
    def test_erasing_does_not_empty_a_line_whose_length_is_not_known(self, erasing: bytes) -> None:
        assert after(b"\x1b[A" + erasing) is Draft.UNCERTAIN

    @pytest.mark.parametrize(("keys", "left"), [(b"x", Draft.UNREAD), (b"\x1b[A", Draft.UNREAD), (b"x\r", Draft.NONE)])
    def test_keys_that_the_program_has_not_read_are_known_to_be_unread(self, keys: bytes, left: Draft) -> None:
        draft = PersonDraft()

        draft.typed(keys)

        assert draft.state(kernel_edits=False, has_unread=lambda: True) is left


class TestLinesThatTheKernelEdits:
    @pytest.mark.parametrize("keys", [*KEYS_THAT_MAY_INSERT.values(), b"\x1b[D", b"\x1b[I", b"\x1b[200~\x1b[201~"])
    def test_keys_that_the_kernel_does_not_know_are_text(self, keys: bytes) -> None:
        # Ctrl-R paints the line anew.
        assert after(keys, kernel=True) is (Draft.NONE if keys == b"\x12" else Draft.HIDDEN)

    @pytest.mark.parametrize(
        ("keys", "left"),
        [
            (b"abc", Draft.HIDDEN),
            (b"abc\x7f\x7f", Draft.HIDDEN),
            (b"abc\x7f\x7f\x7f", Draft.NONE),
            ("é日".encode() + b"\x7f\x7f", Draft.NONE),
            (b"one two\x17", Draft.HIDDEN),
            (b"one two \x17\x17", Draft.NONE),
            (b"   \x17", Draft.NONE),
            (b"\x16\x15", Draft.HIDDEN),
            (b"abc\x15", Draft.NONE),
            (b"abc\x03", Draft.NONE),
            (b"abc\x1a", Draft.NONE),
            (b"abc\x1ad", Draft.HIDDEN),
            (b"abc\x04", Draft.NONE),
            (b"abc\r", Draft.NONE),
            (b"abc\nd", Draft.HIDDEN),
            (b"\x7f\x15\x17", Draft.NONE),
        ],
    )
    def test_its_own_keys_do_what_they_do_there(self, keys: bytes, left: Draft) -> None:
        assert after(keys, kernel=True) is left

    def test_a_byte_at_a_time_is_erased_where_characters_are_not_known(self) -> None:
        draft = PersonDraft()

        draft.typed("é".encode() + b"\x7f", LineKeys(erases_characters=False))

        assert state_of(draft, kernel=True) is Draft.HIDDEN


class TestProgramsThatChangeHowTheyRead:
    def test_text_typed_ahead_is_read_by_the_program_s_own_editor(self) -> None:
        draft = PersonDraft()

        draft.typed(b"ahead", KERNEL)

        assert state_of(draft) is Draft.TYPED
        draft.typed(b"\x15")
        assert state_of(draft) is Draft.NONE

    @pytest.mark.parametrize(("ahead", "left"), [(b"\x1b[?62;22c", Draft.NONE), (b"\x1b[A", Draft.UNCERTAIN)])
    def test_keys_and_reports_that_came_ahead_count_as_such_to_its_own_editor(self, ahead: bytes, left: Draft) -> None:
        draft = PersonDraft()

        draft.typed(ahead, KERNEL)

        assert state_of(draft) is left
        draft.typed(b"\x1b[I")
        assert state_of(draft) is left

    def test_keys_that_a_pager_read_are_not_in_the_next_line(self) -> None:
        draft = PersonDraft()

        draft.typed(b"\x1b[Bq")

        assert state_of(draft, kernel=True) is Draft.NONE
        draft.typed(b"x\x7f", KERNEL)
        assert state_of(draft) is Draft.NONE


@pytest.mark.parametrize("keys", [b"x", b"\r", b"\x1b", b"\x1b[A", b"\x1b[200~pasted\x1b[201~", b"\x1b[?1;2cx"])
def test_a_key_is_a_press(keys: bytes) -> None:
    assert PersonDraft().typed(keys)


@pytest.mark.parametrize(
    "report",
    [
        b"\x1b[?1;2c",
        b"\x1b[24;80R",
        b"\x1bP>|tmux 3.3a\x1b\\",
        b"\x1b]11;rgb:0000/0000/0000\x1b\\",
        b"\x1b[I",
        b"\x1b[?",
    ],
)
def test_a_report_of_the_terminal_is_no_key_press(report: bytes) -> None:
    assert not PersonDraft().typed(report)
    assert not PersonDraft().typed(report, KERNEL)
