"""Which text in the input counts as ours, and how often a message stands among the submitted ones."""

from __future__ import annotations

import pytest

from synapse.terminal.picture import Picture
from synapse.terminal.proof import Shown, count_submitted, shown
from tests.unit.terminal.scenes import TEXT, page, page_profile, screen_of


@pytest.mark.parametrize(
    ("typed", "seen"),
    [
        (TEXT, Shown.WHOLE),
        ("[Pasted 3 lines]", Shown.WHOLE),
        ("please review this", Shown.WHOLE),
        ("this", Shown.FOREIGN),
        (TEXT[:20], Shown.PART),
        ("codex-8120:R] please", Shown.PART),
        ("please", Shown.FOREIGN),
        ("something else", Shown.FOREIGN),
        ("", Shown.NOTHING),
    ],
)
def test_a_few_letters_that_are_in_our_text_too_are_not_ours(typed: str, seen: Shown) -> None:
    assert shown(page(typed), page_profile(), TEXT) is seen


def test_a_page_without_its_input_shows_nothing_of_the_text() -> None:
    assert shown(screen_of("a page that no rule knows", TEXT), page_profile(), TEXT) is Shown.HIDDEN


@pytest.mark.parametrize(
    ("picture", "count"),
    [
        (page(TEXT), 0),
        (page(above=(TEXT,)), 1),
        (page(status=TEXT), 1),
        (page(above=(TEXT, TEXT), status=TEXT), 3),
    ],
    ids=["only in the input", "above it", "queued below it", "several times"],
)
def test_submitted_messages_are_counted_outside_of_the_input(picture: Picture, count: int) -> None:
    assert count_submitted(picture, page_profile(), TEXT) == count
