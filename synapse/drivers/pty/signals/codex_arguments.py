"""Which arguments mean the same to a Codex TUI that has an app-server (tried on 0.166), and which that needs too."""

from __future__ import annotations

from typing import Final

_CONFIGURING: Final = ("-c", "--config", "--enable", "--disable")
_VALUED: Final = (*_CONFIGURING, "-m", "--model", "-s", "--sandbox", "-a", "--ask-for-approval")
_PLAIN: Final = ("--search", "--no-alt-screen", "--last", "--all")
_VERBS: Final = ("resume", "fork")


def is_known_remotely(arguments: tuple[str, ...]) -> bool:
    """True if a TUI on an app-server takes all of them.

    It refuses `--add-dir` and `--no-daemon`, and drops `--profile`; other commands have no TUI, or no server.
    """
    rest = list(arguments)
    is_verb_known = False
    while rest:
        argument = rest.pop(0)
        if argument in _VALUED and rest:
            rest.pop(0)
        elif argument in _VERBS and not is_verb_known:
            is_verb_known = True
        elif argument.startswith("-"):
            if argument not in _PLAIN and not _is_joined(argument, _VALUED):
                return False
        elif not is_verb_known:
            return False
    return True


def for_server(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Those that configure the server as well as the TUI."""
    kept: list[str] = []
    for index, argument in enumerate(arguments):
        if argument in _CONFIGURING:
            kept += arguments[index : index + 2]
        elif _is_joined(argument, _CONFIGURING):
            kept.append(argument)
    return tuple(kept)


def _is_joined(argument: str, flags: tuple[str, ...]) -> bool:
    """True for `--flag=value`."""
    flag, equals, _ = argument.partition("=")
    return bool(equals) and flag.startswith("--") and flag in flags
