"""The built-in agent: a small program without AI that reads lines and answers them, for demos and tests.

    > hello                  echo: hello
    > wait 2                 works for two seconds, then says so
    > lines 100              prints that many lines
    > ask codex how are you  sends to another agent and prints its answer
    > reply all is well      answers the last request by `synapse reply`
    > dialog                 asks for permission, as coding agents do
    > fail · exit 3          says that it failed · ends with that status

It ignores an `[A2A:…]` header in front of a line. SIGINT interrupts a command; the end of input ends the program. It
imports almost nothing, so that it starts at once.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable

PROMPT = "> "
_PIECE_SECONDS = 0.25


def main() -> int:
    """Reads and answers lines until the end; returns the exit status."""
    while True:
        try:
            line = _ask(PROMPT)
            if line is None:
                _say("")
                return 0
            status = _answer(_without_header(line.strip()))
            if status is not None:
                return status
        except KeyboardInterrupt:
            _say("\ninterrupted")


def _answer(line: str) -> int | None:
    """Runs the command in a line; returns an exit status if the program ends."""
    verb, _, rest = line.partition(" ")
    if verb == "exit":
        return int(rest) if rest.isdigit() else 0
    command = _COMMANDS.get(verb)
    if command is not None:
        command(rest.strip())
    elif line:
        _say(f"echo: {line}")
    return None


def _wait(seconds: str) -> None:
    try:
        duration = max(float(seconds or "1"), 0.0)
    except ValueError:
        _say(f"error: '{seconds}' is not a number of seconds")
        return
    _say(f"working for {duration:g} s")
    left = duration
    while left > 0:
        # In pieces: a signal that comes just before the call does not interrupt it.
        piece = min(left, _PIECE_SECONDS)
        select.select((), (), (), piece)
        left -= piece
    _say(f"waited {duration:g} s")


def _lines(count: str) -> None:
    _say("\n".join(f"line {number}" for number in range(1, int(count) + 1)) if count.isdigit() else "error: how many?")


def _dialog(_: str) -> None:
    answer = None
    while answer not in ("y", "n"):
        answer = _ask("Do you want to proceed? [y/n] ")
        if answer is None:
            return
        answer = answer.strip().lower()
    _say("allowed" if answer == "y" else "denied")


def _fail(rest: str) -> None:
    _say(f"error: {rest or 'it failed, as asked'}")


def _ask_agent(rest: str) -> None:
    target, _, text = rest.partition(" ")
    if not text:
        _say("error: ask whom, and what?  (ask AGENT TEXT)")
        return
    _synapse("send", target, text, "--response")


def _reply(text: str) -> None:
    _synapse("reply", text)


def _synapse(*arguments: str) -> None:
    """Runs `synapse …`; its output becomes our answer."""
    # First beside our own Python. Relative entries of the PATH are skipped: they name folders inside the current one.
    folders = [sys.executable.rpartition("/")[0], *os.environ.get("PATH", os.defpath).split(":")]
    programs = [f"{folder}/synapse" for folder in folders if folder.startswith("/")]
    command = next((program for program in programs if os.access(program, os.X_OK)), "")
    sys.stdout.flush()
    if not command:
        _say("error: synapse is not on the PATH")
        return
    # Only the result on stdout is our answer, not the notices on stderr.
    quiet = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(command, (command, *arguments), os.environ, file_actions=quiet)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        _say(f"error: synapse {arguments[0]} ended with status {status}")


_COMMANDS: dict[str, Callable[[str], None]] = {
    "wait": _wait,
    "lines": _lines,
    "dialog": _dialog,
    "fail": _fail,
    "ask": _ask_agent,
    "reply": _reply,
}


def _without_header(line: str) -> str:
    """Removes the envelope header: `[A2A:1a2b3c4d:codex:R] text` → `text`."""
    if not line.startswith("[A2A:"):
        return line
    return line.partition("]")[2].strip()


def _ask(prompt: str) -> str | None:
    sys.stdout.write(prompt)
    sys.stdout.flush()
    line = sys.stdin.buffer.readline()
    return line.decode("utf-8", "replace") if line else None


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
