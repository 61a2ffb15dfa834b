"""A conversation whose name is chosen by us, so that its transcript is known among all others of the folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from synapse.drivers.pty.signals.adapter import Surroundings
from synapse.drivers.pty.signals.flags import knows_flag

_FLAG: Final = "--session-id"
_HEADER: Final = "[A2A:"
_MOST_FILES: Final = 5
_TAIL_BYTES: Final = 256 * 1024


def name_session(
    arguments: tuple[str, ...], around: Surroundings, others: tuple[str, ...]
) -> tuple[tuple[str, ...], str]:
    """Return the arguments with our name for the conversation, and the name.

    A person's own name for it is kept. There is none, and nothing is added, when they go on with an old conversation
    (by one of `others`) or when the version has no such flag.
    """
    for index, argument in enumerate(arguments):
        if argument == _FLAG and index + 1 < len(arguments):
            return arguments, arguments[index + 1]
        if argument.startswith(_FLAG + "="):
            return arguments, argument.partition("=")[2]
    if any(argument.partition("=")[0] in others for argument in arguments) or not knows_flag(_FLAG, around):
        return arguments, ""
    return (_FLAG, around.new_session, *arguments), around.new_session


def transcript_with(message: str, files: Iterable[Path]) -> Path | None:
    """The transcript that holds a message of ours, by its header, which no other message has.

    A conversation that was begun anew or resumed in the terminal has a name that is not ours.
    """
    header = message.partition("]")[0].encode()
    if not message.startswith(_HEADER):
        return None
    newest = sorted(files, key=_changed_at, reverse=True)[:_MOST_FILES]
    return next((file for file in newest if header in _end_of(file)), None)


def _changed_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _end_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
            return file.read()
    except OSError:
        return b""
