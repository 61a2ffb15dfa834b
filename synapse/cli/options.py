"""The options of `send` and `reply`, read by hand: argparse alone would cost them more than all the rest.

What is said of a message once an agent's host has it. `synapse send` imports this file: nothing of weight here.
"""

import os
import sys

from synapse.cli.output import give_json, print_notice
from synapse.core.address import short_name
from synapse.core.agent import AgentEntry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

STANDARD_INPUT = "-"
HELP = "--help"


class Options:
    """What was typed after the verb: the words, and the options with their values (switches have an empty one)."""

    __slots__ = ("values", "verb", "words")

    def __init__(self, verb: str, words: "list[str]", values: "dict[str, str]") -> None:
        self.verb = verb
        self.words = words
        self.values = values

    def has(self, option: str) -> bool:
        return option in self.values

    def text(self, option: str) -> str:
        return self.values.get(option, "")

    def seconds(self, option: str) -> "float | None":
        """The value of an option that is a number of seconds."""
        if option not in self.values:
            return None
        try:
            seconds = float(self.values[option])
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < 1e9:
            self.refuse(f"{option} must be a number of seconds above 0, not '{self.values[option]}'")
        return seconds

    def message(self, words: "list[str]") -> str:
        """The message: `words` joined, then what stands in the file or comes from standard input."""
        pieces = [" ".join(word for word in words if word != STANDARD_INPUT)]
        if STANDARD_INPUT in words:
            pieces.append(sys.stdin.buffer.read().decode("utf-8", "replace"))
        if self.has("--file"):
            pieces.append(_read(self.values["--file"]))
        # Bytes of the command line that are no UTF-8 came in as lone surrogates, which no JSON may carry.
        text = (
            "\n".join(piece for piece in pieces if piece).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        )
        if not text.strip():
            self.refuse("there is no message")
        return text

    def refuse(self, why: str) -> "NoReturn":
        from synapse.core.errors import InvalidRequest

        raise InvalidRequest(why, hint=f"synapse {self.verb} --help")


def parse(verb: str, arguments: "list[str]", valued: "tuple[str, ...]", switches: "tuple[str, ...]") -> Options:
    """Read `arguments`: options anywhere, `--option value` or `--option=value`; everything after `--` is words.

    A message may begin with a dash: only what looks exactly like an option is taken for one.
    """
    options = Options(verb, [], {})
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            options.words.extend(rest)
        elif argument in ("-h", HELP):
            options.values[HELP] = ""
        elif not argument.startswith("--") or " " in argument.partition("=")[0] or "\n" in argument.partition("=")[0]:
            options.words.append(argument)
        else:
            _take(options, argument, rest, valued, switches)
    return options


def _take(
    options: Options, argument: str, rest: "Iterator[str]", valued: "tuple[str, ...]", switches: "tuple[str, ...]"
) -> None:
    name, equals, value = argument.partition("=")
    if name in valued:
        if not equals:
            following = next(rest, None)
            if following is None:
                options.refuse(f"{name} needs a value")
            value = following
        options.values[name] = value
    elif name in switches and not equals:
        options.values[name] = ""
    else:
        _refuse_unknown(options, name, [*valued, *switches])


def _refuse_unknown(options: Options, name: str, known: "list[str]") -> "NoReturn":
    from synapse.core.address import nearest
    from synapse.core.errors import InvalidRequest

    meant = nearest(name, known)
    hint = f"did you mean {meant}?  " if meant else ""
    raise InvalidRequest(f"unknown option {name}", hint=f"{hint}(synapse {options.verb} --help; `--` ends the options)")


def _read(path: str) -> str:
    with open(os.path.expanduser(path), "rb") as file:
        return file.read().decode("utf-8", "replace")


def report_sent(entry: AgentEntry, task: "dict[str, Any]", options: Options, *, replied: bool = False) -> None:
    """Say that the message is with the agent's host."""
    if options.has("--json"):
        give_task(task)
        return
    done = "replied" if replied else "sent"
    print_notice(f"[→ {short_name(entry)}] {done}  (task {str(task.get('id', ''))[:8]})")


def give_task(task: "dict[str, Any]") -> None:
    """The task for a machine."""
    from synapse.cli.views import receipt_of

    give_json({"task": task, "reply": None, "receipt": receipt_of(task)})
