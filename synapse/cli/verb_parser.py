"""The argument parser of every verb but `send` and `reply`: its mistakes are our errors, and its help has examples."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter

from synapse.cli.main import VERBS
from synapse.cli.render import line_width
from synapse.core.errors import InvalidRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class VerbParser(ArgumentParser):
    """Parses what follows a verb.

    Raises InvalidRequest instead of ending the process, so that `--json` gets its error object.
    """

    def __init__(self, verb: str, *, examples: str, summary: str = "", json: bool = True) -> None:
        lines = "\n".join(f"  {line}" for line in examples.strip().splitlines())
        super().__init__(
            prog=f"synapse {verb}",
            description=summary or VERBS[verb][1],
            epilog=f"examples:\n{lines}",
            # With a width of its own the formatter does not load shutil to find one.
            formatter_class=lambda prog: RawDescriptionHelpFormatter(prog, width=min(line_width(), 100)),
            allow_abbrev=False,
        )
        if json:
            self.add_argument("--json", action="store_true", help="the result for machines")

    def error(self, message: str) -> "NoReturn":  # type: ignore[explicit-override]  # typing.override needs Python 3.12
        raise InvalidRequest(message, hint=f"{self.prog} --help")


def split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What stands before `--`, and what stands after it and belongs to the agent's program."""
    if "--" not in arguments:
        return arguments, []
    cut = arguments.index("--")
    return arguments[:cut], arguments[cut + 1 :]
