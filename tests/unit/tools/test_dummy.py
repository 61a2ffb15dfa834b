"""The built-in agent: its commands and answers."""

from __future__ import annotations

import io
import sys

import pytest

from synapse.tools import dummy


class Lines:
    """Standard input that is typed beforehand; a None in it is Ctrl-C."""

    def __init__(self, *lines: str | None) -> None:
        self._lines = list(lines)
        self.buffer = self

    def readline(self) -> bytes:
        if not self._lines:
            return b""
        line = self._lines.pop(0)
        if line is None:
            raise KeyboardInterrupt
        return line.encode() + b"\n"


def answers(monkeypatch: pytest.MonkeyPatch, *lines: str | None) -> tuple[str, int]:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdin", Lines(*lines))
    monkeypatch.setattr(sys, "stdout", shown)
    status = dummy.main()
    return shown.getvalue().replace("> ", ""), status


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("hello", "echo: hello\n"),
        ("[A2A:1a2b3c4d:codex:R] hello", "echo: hello\n"),
        ("[A2A:1a2b3c4d:codex] lines 2", "line 1\nline 2\n"),
        ("", ""),
        ("wait 0", "working for 0 s\nwaited 0 s\n"),
        ("wait long", "error: 'long' is not a number of seconds\n"),
        ("lines many", "error: how many?\n"),
        ("fail", "error: it failed, as asked\n"),
        ("fail badly", "error: badly\n"),
        ("ask codex", "error: ask whom, and what?  (ask AGENT TEXT)\n"),
    ],
)
def test_each_line_has_its_answer(monkeypatch: pytest.MonkeyPatch, line: str, answer: str) -> None:
    assert answers(monkeypatch, line) == (answer + "\n", 0)


@pytest.mark.parametrize(("line", "status"), [("exit", 0), ("exit 3", 3), ("exit now", 0)])
def test_it_ends_with_the_status_that_it_is_told(monkeypatch: pytest.MonkeyPatch, line: str, status: int) -> None:
    assert answers(monkeypatch, line, "not read") == ("", status)


def test_it_lives_through_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answers(monkeypatch, None, "hello") == ("\ninterrupted\necho: hello\n\n", 0)


@pytest.mark.parametrize(("answer", "said"), [("y", "allowed"), ("n", "denied")])
def test_a_dialog_asks_until_it_is_answered(monkeypatch: pytest.MonkeyPatch, answer: str, said: str) -> None:
    shown, _ = answers(monkeypatch, "dialog", "what?", answer)

    assert shown.count("Do you want to proceed? [y/n] ") == 2
    assert said in shown


def test_a_dialog_ends_with_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answers(monkeypatch, "dialog") == ("Do you want to proceed? [y/n] \n", 0)


def test_it_asks_and_replies_by_synapse(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")

    shown, _ = answers(monkeypatch, "ask codex how are you", "reply fine")

    assert shown.count("error: synapse is not on the PATH") == 2
