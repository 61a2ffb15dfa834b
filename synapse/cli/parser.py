"""The argument parser of every verb but `send` and `reply`: its mistakes are our errors, and its help has examples."""

import re
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter

from synapse.cli.main import VERBS
from synapse.cli.tables import line_width
from synapse.core.address import nearest
from synapse.core.errors import InvalidRequest
from synapse.core.override import override

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

NUMBERS = {"int": "a whole number", "float": "a number"}
LARGEST = 10**9


class VerbParser(ArgumentParser):
    """Parses what follows a verb.

    Raises InvalidRequest instead of ending the process, so that `--json` gets its error object. `program` is the one
    that gets what stands behind `--`.
    """

    def __init__(self, verb: str, *, examples: str, summary: str = "", json: bool = True, program: str = "") -> None:
        lines = "\n".join(f"  {line}" for line in examples.strip().splitlines())
        super().__init__(
            prog=f"synapse {verb}",
            description=summary or VERBS[verb][1],
            epilog=f"examples:\n{lines}",
            # With a width of its own the formatter does not load shutil to find one.
            formatter_class=lambda prog: RawDescriptionHelpFormatter(prog, width=min(line_width(), 100)),
            allow_abbrev=False,
        )
        self._program = program
        if json:
            self.add_argument("--json", action="store_true", help="the result for machines")

    @override
    def error(self, message: str) -> "NoReturn":
        # Its own words are for programmers; there is no other way to learn what it found wrong.
        number = re.fullmatch(r"argument (\S+): invalid (int|float) value: (.*)", message, re.DOTALL)
        if number:
            message = f"{number[1].rpartition('/')[2]} must be {NUMBERS[number[2]]}, not {number[3]}"
        demand = re.fullmatch(r"argument (\S+): (must be .*)", message, re.DOTALL)
        if demand:
            message = f"{demand[1].rpartition('/')[2]} {demand[2]}"
        choice = re.fullmatch(r"argument (\S+): invalid choice: (.*) \(choose from (.*)\)", message, re.DOTALL)
        if choice:
            message = f"{choice[1]} must be one of {choice[3].replace(chr(39), '')}, not {choice[2]}"
        _, unknown, words = message.partition("unrecognized arguments: ")
        if unknown:
            self.refuse(words.split(" ")[0].partition("=")[0])
        raise InvalidRequest(message, hint=f"{self.prog} --help")

    def refuse(self, word: str) -> "NoReturn":
        """Raises InvalidRequest: this verb has no such word."""
        is_option = word.startswith("-")
        meant = nearest(word, list(self._known_options())) if is_option else None
        hints = [f"did you mean {meant}?  ({self.prog} --help)"] if meant else []
        if self._program:
            # Whoever knows the program well types its own options where they always did.
            ours = self.prog.removesuffix(f" {self._program}")
            theirs = word if is_option else "…"
            hints.append(f"what is for {self._program} itself follows `--`:  {ours} {self._program} -- {theirs}")
        what = f"unknown option {word}" if is_option else f"'{word}' is one word too many"
        raise InvalidRequest(what, hint="\n".join(hints) or f"{self.prog} --help")

    def _known_options(self) -> "Iterable[str]":
        """The long options of the verb, and those of its actions."""
        for action in self._actions:
            yield from (option for option in action.option_strings if option.startswith("--"))
            choices: Any = action.choices
            if hasattr(choices, "values"):
                for parser in choices.values():
                    yield from parser._known_options()  # noqa: SLF001 - another one of the same class


def whole_number(least: int) -> "Callable[[str], int]":
    """The `type` of an option that is a number of things, so many at least."""

    def read(word: str) -> int:
        try:
            number = int(word)
        except ValueError:
            number = LARGEST
        if not least <= number < LARGEST:
            raise ArgumentTypeError(f"must be a whole number from {least} to {LARGEST - 1}, not '{word}'")
        return number

    return read


def seconds(word: str) -> float:
    """The `type` of an option that is a number of seconds."""
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0 < number < LARGEST:
        raise ArgumentTypeError(f"must be a number of seconds above 0, not '{word}'")
    return number


def split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What stands before `--`, and what stands after it and belongs to the agent's program."""
    if "--" not in arguments:
        return arguments, []
    cut = arguments.index("--")
    return arguments[:cut], arguments[cut + 1 :]
