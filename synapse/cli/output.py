"""Results on stdout, talk on stderr, always UTF-8. `synapse send` imports this file: nothing of weight here."""

import sys

from synapse.core.json_text import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TextIO

    from synapse.client.fan_out import HostReply
    from synapse.core.errors import SynapseError


def print_result(text: str) -> None:
    """Write a result; to a terminal without anything that could act there, except our own colours."""
    _write(sys.stdout, _for_terminal(text))


def give_piece(text: str) -> None:
    """Write a piece of a result that goes on in the same line."""
    _write(sys.stdout, _for_terminal(text), end="")


def give_json(value: "Any") -> None:
    """Write a result for a machine, on one line."""
    _write(sys.stdout, encode(value))


def print_notice(text: str) -> None:
    """Tell a person something about how it goes; names and errors in it may be another agent's words."""
    _write(sys.stderr, _harmless(text))


def warn_of_silent(asked: "Sequence[HostReply]") -> None:
    """Say who did not answer: what they know is missing from what is shown."""
    for one in asked:
        if one.error is not None:
            print_notice(f"Warning: {one.error}" + (f"\n{one.error.hint}" if one.error.hint else ""))


def print_error(error: "SynapseError | OSError", *, as_json: bool, task_id: str = "") -> int:
    """Tell what went wrong and what to do next; return the exit code. `task_id` is the task that goes on."""
    from synapse.cli.exit_codes import exit_code

    code, message, hint = _described(error)
    if as_json:
        task = {"task_id": task_id} if task_id else {}
        give_json({"error": {**described(error), **task}})
    else:
        print_notice(f"Error: {message}" + (f"\n{hint}" if hint else ""))
    return exit_code(code)


def described(error: "SynapseError | OSError") -> "dict[str, str]":
    """An error for a machine."""
    code, message, hint = _described(error)
    return {"code": code, "message": message, "hint": hint}


def _described(error: "SynapseError | OSError") -> "tuple[str, str, str]":
    if isinstance(error, OSError):
        if error.filename is None and _has_lost_its_folder():
            return "error", "the folder that this shell is in is not there any more", "go to one that is: cd"
        place = f": {error.filename}" if error.filename else ""
        return "error", f"{error.strerror or error}{place}", ""
    from synapse.cli.exit_codes import HINTS

    return error.code, str(error), error.hint or HINTS.get(error.code, "")


def _has_lost_its_folder() -> bool:
    import os

    try:
        os.getcwd()
    except OSError:
        return True
    return False


def _for_terminal(text: str) -> str:
    if sys.stdout is None or not sys.stdout.isatty():
        return text
    if "\x1b" not in text:
        return _harmless(text)
    from synapse.cli.tables import split_colours

    return "".join(piece if is_colour else _harmless(piece) for piece, is_colour in split_colours(text))


def _harmless(text: str) -> str:
    if all(line.isprintable() for line in text.split("\n")):
        return text
    from synapse.core.text import sanitise

    return sanitise(text)


def _write(stream: "TextIO | None", text: str, end: str = "\n") -> None:
    if stream is None:
        return  # it was closed by whoever started us
    # Straight to the bytes: a locale that has no arrows or kana must not turn a result into an error.
    try:
        stream.flush()
        stream.buffer.write((text + end).encode("utf-8", "replace"))
        stream.buffer.flush()
    except OSError as error:
        # The same error, with what it is about; a closed pipe stays one.
        raise OSError(error.errno, f"the output cannot be written: {error.strerror}") from error
