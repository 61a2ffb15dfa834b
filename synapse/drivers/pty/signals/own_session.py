"""A conversation whose name is chosen by us, so that its transcript is known among all others of the folder."""

from __future__ import annotations

from typing import Final

from synapse.drivers.pty.signals.adapter import Surroundings
from synapse.drivers.pty.signals.flags import knows_flag

_FLAG: Final = "--session-id"


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
