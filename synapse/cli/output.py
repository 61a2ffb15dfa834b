"""Prints results on stdout and notices on stderr, always as UTF-8.

`synapse send` imports this module, so it imports nothing heavy.
"""

import sys

from synapse.core.json_text import encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TextIO

    from synapse.client.fan_out import HostReply
    from synapse.core.errors import SynapseError


def print_result(text: str) -> None:
    """Prints a result. On a terminal, removes every control sequence except our own colours."""
    _write(sys.stdout, _for_terminal(text))


def print_part(text: str) -> None:
    """Prints part of a result; the next part continues on the same line."""
    _write(sys.stdout, _for_terminal(text), end="")


def print_json(value: "Any") -> None:
    """Prints a result for programs, as one line of JSON."""
    _write(sys.stdout, encode(value))


def print_notice(text: str) -> None:
    """Prints a message for people on stderr, sanitised: names and errors in it may come from another agent."""
    _write(sys.stderr, _sanitised(text))


def warn_unanswered(replies: "Sequence[HostReply]") -> None:
    """Prints a warning for each host that did not answer: its data is missing from the result."""
    for reply in replies:
        if reply.error is not None:
            print_notice(f"Warning: {reply.error}" + (f"\n{reply.error.hint}" if reply.error.hint else ""))


def print_failed(home: str) -> None:
    """Prints a notice if messages to other machines have failed, which nobody else may have said; asks the link."""
    from synapse.client.link import failed_lines

    for line in failed_lines(home):
        print_notice(line)


def print_error(error: "SynapseError | OSError", *, as_json: bool, task_id: str = "") -> int:
    """Prints an error with its hint and returns the exit code. `task_id` names a task that is still running."""
    from synapse.cli.exit_codes import exit_code

    fields = error_fields(error)
    if as_json:
        task = {"task_id": task_id} if task_id else {}
        print_json({"error": {**fields, **task}})
    else:
        print_notice(f"Error: {fields['message']}" + (f"\n{fields['hint']}" if fields["hint"] else ""))
    return exit_code(fields["code"])


def error_fields(error: "SynapseError | OSError") -> "dict[str, str]":
    """Returns the error object of `--json`."""
    if isinstance(error, OSError):
        if error.filename is None and _is_folder_gone():
            return {"code": "error", "message": "the current folder no longer exists", "hint": "change to another: cd"}
        place = f": {error.filename}" if error.filename else ""
        return {"code": "error", "message": f"{error.strerror or error}{place}", "hint": ""}
    from synapse.cli.exit_codes import HINTS

    return {"code": error.code, "message": str(error), "hint": error.hint or HINTS.get(error.code, "")}


def _is_folder_gone() -> bool:
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
        return _sanitised(text)
    from synapse.cli.tables import split_colours

    return "".join(piece if is_colour else _sanitised(piece) for piece, is_colour in split_colours(text))


def _sanitised(text: str) -> str:
    if all(line.isprintable() for line in text.split("\n")):
        return text
    from synapse.core.text import sanitise

    return sanitise(text)


def _write(stream: "TextIO | None", text: str, end: str = "\n") -> None:
    if stream is None:
        return  # the parent process closed it
    # Written as bytes: a locale without arrows or kana must not turn a result into an error.
    try:
        stream.flush()
        stream.buffer.write((text + end).encode("utf-8", "replace"))
        stream.buffer.flush()
    except OSError as error:
        # Keeps the errno, so that a closed pipe is still a BrokenPipeError.
        raise OSError(error.errno, f"cannot write the output: {error.strerror}") from error
