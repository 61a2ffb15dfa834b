"""Parses the options of `send` and `reply`, and reports a message that was sent.

The options are parsed by hand: argparse alone would take longer than everything else these verbs do. `synapse send`
imports this module, so it imports nothing heavy.
"""

import os
import sys

from synapse.cli.output import print_json, print_notice
from synapse.client.hosts import ask, current_folder, open_registry, own_agent
from synapse.core.address import short_name, split_inbox
from synapse.core.agent import AgentEntry
from synapse.core.json_text import object_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, NoReturn

STANDARD_INPUT = "-"
HELP = "--help"
MOST_FILE_BYTES = 32 * 1024 * 1024
"""Inside an agent. Far more than hosts accept, so that they refuse a large message themselves."""


class Options:
    """The arguments of a verb: its words, and its options with their values (switches have an empty one)."""

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
        """Returns the option's value as seconds, or None if it was not given. Raises InvalidRequest."""
        if option not in self.values:
            return None
        try:
            seconds = float(self.values[option])
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < 1e9:
            self.refuse(f"{option} must be a number of seconds greater than 0, not '{self.values[option]}'")
        return seconds

    def message(self, words: "list[str]") -> str:
        """Returns the message: `words` joined, then standard input and the file of `--file`, if asked for.

        Raises InvalidRequest if the message is empty, or an agent may not read the file.
        """
        pieces = [" ".join(word for word in words if word != STANDARD_INPUT)]
        if STANDARD_INPUT in words:
            pieces.append(sys.stdin.buffer.read().decode("utf-8", "replace"))
        if self.has("--file"):
            pieces.append(self._file().decode("utf-8", "replace"))
        # Arguments that are not UTF-8 arrive as lone surrogates, which JSON cannot carry.
        text = (
            "\n".join(piece for piece in pieces if piece).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        )
        if not text.strip():
            self.refuse("the message is missing")
        return text

    def refuse(self, why: str) -> "NoReturn":
        """Raises InvalidRequest with a hint to the verb's help."""
        from synapse.core.errors import InvalidRequest

        raise InvalidRequest(why, hint=f"synapse {self.verb} --help")

    def _file(self) -> bytes:
        """Returns the content of `--file`. A model's CLI runs this unasked, so inside an agent not every file is read.

        Raises InvalidRequest.
        """
        path = os.path.expanduser(self.values["--file"])
        own = own_agent(open_registry())
        if own is None:
            with open(path, "rb") as file:
                return file.read()
        from synapse.client.files import NotReadable, read_inside, temporary_folder

        # An agent that is not registered has no folder of its own here.
        folders = [folder for folder in (own.working_dir, temporary_folder()) if folder]
        try:
            return read_inside(path, current_folder(), folders, MOST_FILE_BYTES)
        except NotReadable as error:
            from synapse.core.errors import InvalidRequest

            hint = f"inside an agent, `synapse {self.verb} … - < FILE` reads any file; the CLI asks a person about it"
            raise InvalidRequest(f"--file: {error}", hint=hint) from error


def parse(verb: str, arguments: "list[str]", valued: "tuple[str, ...]", switches: "tuple[str, ...]") -> Options:
    """Parses `arguments`: options anywhere, as `--option value` or `--option=value`; all after `--` are words.

    A message may begin with a dash: only an argument that looks exactly like an option is taken for one.

    Raises:
        InvalidRequest: an option is unknown or lacks its value.
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
            _parse_option(options, argument, rest, valued, switches)
    return options


def _parse_option(
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
        from synapse.core.address import nearest
        from synapse.core.errors import InvalidRequest

        meant = nearest(name, [*valued, *switches])
        guess = f"did you mean {meant}?  " if meant else ""
        hint = f"{guess}(synapse {options.verb} --help; `--` ends the options)"
        raise InvalidRequest(f"unknown option {name}", hint=hint)


def report_sent(entry: AgentEntry, task: "dict[str, Any]", options: Options, *, replied: bool = False) -> None:
    """Prints that the agent's host has accepted the message."""
    if options.has("--json"):
        print_task(task)
        return
    done, task_id = "replied" if replied else "sent", str(task.get("id", ""))[:8]
    if object_in(task, "metadata").get("outbox") == "open":
        # Only a remote task has it: the message is on the disk of this machine.
        machine = split_inbox(entry.inbox)[1]
        print_notice(f"[→ {short_name(entry)}] kept until {machine} takes it  (task {task_id}, synapse fleet outbox)")
        return
    print_notice(f"[→ {short_name(entry)}] {done}  (task {task_id})")


def print_replied(own: AgentEntry, replied: "dict[str, Any]", options: Options) -> None:
    """Prints that the own host of this agent has taken its reply."""
    if options.has("--json"):
        print_task(ask(own, "GET", f"/tasks/{replied['task_id']}"))
    else:
        print_notice(f"[→ {replied['to']}] replied  (task {replied['task_id'][:8]})")


def print_task(task: "dict[str, Any]") -> None:
    """Prints the `--json` result of a message that nothing waits for."""
    from synapse.client.views import receipt_of

    print_json({"task": task, "reply": None, "receipt": receipt_of(task)})
