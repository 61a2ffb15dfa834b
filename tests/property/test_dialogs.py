"""Reading a dialog never fails, and never returns text that acts on a terminal, whatever the screen shows."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synapse.core.question import Choice
from synapse.core.text import LONGEST_DETAIL, LONGEST_LINE
from synapse.terminal.dialog import read_dialog
from synapse.terminal.picture import Picture
from synapse.terminal.signals.claude import hook_answer, question_in
from tests.unit.terminal.bundled import bundled, bundled_names
from tests.unit.terminal.golden_screens import names, picture

PROFILES = [bundled(name) for name in bundled_names()]
ROWS = sorted({row for name in names() for row in picture(name).lines})
UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

rows = st.one_of(
    st.sampled_from(ROWS), st.text(max_size=200), st.from_regex(r" *[\u276f\u203a●> ] ?\d{1,3}\. .*", fullmatch=True)
)
json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(rows, min_size=1, max_size=40), st.sampled_from(PROFILES), st.integers(20, 200))
@pytest.mark.parametrize("tail", ["claude/dialog_permission", "claude/startup_trust", "copilot/dialog_question", ""])
def test_any_screen_is_read_safely(tail: str, lines: list[str], profile: object, columns: int) -> None:
    assert isinstance(profile, type(PROFILES[0]))
    below = picture(tail).lines if tail else ()
    seen = Picture((*lines, *below), (0, 0), columns, len(lines) + len(below))

    for chosen in (profile, bundled(tail.partition("/")[0])) if tail else (profile,):
        dialog = read_dialog(seen, chosen)
        if dialog is None:
            continue
        lines_of_it = [dialog.title, *(option.label for option in dialog.options), *(o.key for o in dialog.options)]
        assert not any(UNSAFE.search(text) or "\n" in text or len(text) > LONGEST_LINE for text in lines_of_it)
        assert not UNSAFE.search(dialog.detail)
        assert len(dialog.detail) <= LONGEST_DETAIL
        assert dialog.title


@given(
    st.dictionaries(st.sampled_from(["tool_name", "tool_input", "permission_suggestions"]), json_like),
    st.text(max_size=3),
)
def test_any_payload_of_a_hook_asks_something_safe(payload: dict[str, object], key: str) -> None:
    question = question_in(payload, "q")

    assert not UNSAFE.search(question.title)
    assert not UNSAFE.search(question.detail)
    hook_answer(payload, Choice(option=key))
