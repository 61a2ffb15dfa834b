"""The theme is read from a terminal's answer."""

from __future__ import annotations

import pytest

from synapse.terminal.theme import Theme, theme_in


@pytest.mark.parametrize(
    ("reply", "theme"),
    [
        (b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\", Theme.LIGHT),
        (b"\x1b]11;rgb:fd/f6/e3\x07\x1b[?62c", Theme.LIGHT),
        (b"\x1b]11;rgb:0/0/0\x07", Theme.DARK),
        (b"keys\x1b]11;rgba:2828/2c2c/3434/ffff\x07", Theme.DARK),
        (b"\x1b[?62c", Theme.NONE),
        (b"\x1b]10;rgb:ffff/ffff/ffff\x07", Theme.NONE),
    ],
)
def test_the_background_that_a_terminal_reports_is_light_or_dark(reply: bytes, theme: Theme) -> None:
    assert theme_in(reply) is theme


@pytest.mark.parametrize("theme", [Theme.DARK, Theme.LIGHT])
def test_the_theme_is_read_from_the_answer_of_an_emulator(theme: Theme) -> None:
    _, background = theme.colours
    assert background is not None

    assert theme_in(b"\x1b]11;rgb:%02x/%02x/%02x\x07" % background) is theme
