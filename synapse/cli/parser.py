"""The argument parser of every verb but `send` and `reply`: raises our own errors, and shows examples in its help."""

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
REMARK_LEAST = 24
"""The columns that a remark beside an example needs; with fewer it stands below."""


class VerbParser(ArgumentParser):
    """Parses the arguments of a verb.

    Raises InvalidRequest instead of ending the process, so that `--json` gets an error object. `program` is the agent's
    program, which gets the arguments after `--`.
    """

    def __init__(self, verb: str, *, examples: str, summary: str = "", json: bool = True, program: str = "") -> None:
        lines = "\n".join(_fitted(f"  {line}", line_width()) for line in examples.strip().splitlines())
        super().__init__(
            prog=f"synapse {verb}",
            description=summary or VERBS[verb][1],
            epilog=f"examples:\n{lines}",
            # With an explicit width the formatter does not load shutil to find one.
            formatter_class=lambda prog: RawDescriptionHelpFormatter(prog, width=min(line_width(), 100)),
            allow_abbrev=False,
        )
        self._program = program
        if json:
            self.add_argument("--json", action="store_true", help="print the result as JSON")

    @override
    def error(self, message: str) -> "NoReturn":
        # argparse words its messages for programmers, and offers no other way to learn what was wrong.
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
        """Raises InvalidRequest: the verb does not take `word`."""
        is_option = word.startswith("-")
        meant = nearest(word, list(self._known_options())) if is_option else None
        hints = [f"did you mean {meant}?  ({self.prog} --help)"] if meant else []
        if self._program:
            # People who know the program put its options where they always did.
            ours = self.prog.removesuffix(f" {self._program}")
            theirs = word if is_option else "…"
            hints.append(f"put arguments for {self._program} itself after `--`:  {ours} {self._program} -- {theirs}")
        what = f"unknown option {word}" if is_option else f"unexpected argument '{word}'"
        raise InvalidRequest(what, hint="\n".join(hints) or f"{self.prog} --help")

    def _known_options(self) -> "Iterable[str]":
        """Yields the long options of the verb and of its actions."""
        for action in self._actions:
            yield from (option for option in action.option_strings if option.startswith("--"))
            choices: Any = action.choices
            if hasattr(choices, "values"):
                for parser in choices.values():
                    yield from parser._known_options()  # noqa: SLF001 - an instance of this class


class ActionParser(VerbParser):
    """Parses the arguments of an action of a verb, as `synapse keys create`; argparse constructs it."""

    def __init__(self, prog: str, *, examples: str, summary: str) -> None:
        super().__init__(prog.removeprefix("synapse "), examples=examples, summary=summary)

    @override
    def parse_known_args(self, *args: "Any", **fields: "Any") -> "Any":
        # The parser of the verb would refuse them later, with its own help instead of the action's.
        options, unknown = super().parse_known_args(*args, **fields)
        if unknown:
            self.refuse(unknown[0].partition("=")[0])
        return options, unknown


def whole_number(least: int) -> "Callable[[str], int]":
    """Returns the `type` of an option that takes a whole number of at least `least`."""

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
    """The `type` of an option that takes a number of seconds."""
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0 < number < LARGEST:
        raise ArgumentTypeError(f"must be a number of seconds greater than 0, not '{word}'")
    return number


def split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Splits arguments at `--`; those after it belong to the agent's program."""
    if "--" not in arguments:
        return arguments, []
    cut = arguments.index("--")
    return arguments[:cut], arguments[cut + 1 :]


def _fitted(example: str, columns: int) -> str:
    """Returns an example with its remark wrapped into the terminal. The command stays whole, to be copied."""
    parts = re.fullmatch(r"(.*?\S) {2,}(\S.*)", example)
    if len(example) <= columns or parts is None:
        return example
    import textwrap

    start = parts.start(2)
    if columns - start < REMARK_LEAST:
        return f"{parts[1]}\n" + textwrap.fill(
            parts[2], columns, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False
        )
    remark = textwrap.wrap(parts[2], columns - start, break_on_hyphens=False)
    return example[:start] + f"\n{' ' * start}".join(remark)
