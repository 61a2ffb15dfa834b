"""A terminal with a server of its own is started only with arguments that it knows."""

from __future__ import annotations

import pytest

from synapse.drivers.pty.adapters.codex import server_arguments, works_remotely


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("-m", "some-model", "-s", "read-only", "-a", "never"),
        ("--model=some-model", "--search", "--no-alt-screen"),
        ("-c", 'model_reasoning_effort="high"', "resume", "--last"),
        ("resume", "0f8b4c1e"),
        ("fork",),
    ],
)
def test_arguments_that_were_tried_with_a_server_are_accepted(arguments: tuple[str, ...]) -> None:
    assert works_remotely(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--add-dir", "/srv"),
        ("--no-daemon",),
        ("-p", "work"),
        ("--profile=work",),
        ("--remote", "ws://127.0.0.1:1"),
        ("--oss",),
        ("exec", "hello"),
        ("login",),
        ("a first prompt",),
        ("-m",),
    ],
)
def test_other_arguments_start_a_tui_without_a_server(arguments: tuple[str, ...]) -> None:
    assert not works_remotely(arguments)


def test_the_server_is_configured_as_its_terminal_is() -> None:
    arguments = ("-m", "x", "-c", "a=1", "--config=b=2", "--enable", "f", "resume")

    assert server_arguments(arguments) == ("-c", "a=1", "--config=b=2", "--enable", "f")
