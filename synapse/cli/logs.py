"""`synapse logs`: what an agent's host has logged, also after it has ended."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from synapse.cli.hosts import open_gateways, open_registry
from synapse.cli.speech import give, give_json, say
from synapse.cli.verb_parser import VerbParser, whole_number
from synapse.core.address import matching
from synapse.core.errors import AmbiguousTarget, NotFound
from synapse.registries.files import FileRegistry
from synapse.runtime.settings import load_settings

EXAMPLES = """
synapse logs codex
synapse logs codex -n 200
synapse logs codex -f               follow, until Ctrl-C
"""


def run(arguments: list[str]) -> int:
    """Show a log and return the exit code."""
    parser = VerbParser("logs", examples=EXAMPLES)
    parser.add_argument("agent", metavar="AGENT")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what comes")
    parser.add_argument("-n", "--lines", type=whole_number(0), default=50, help="how many lines from the end (50)")
    options = parser.parse_args(arguments)
    files = log_files(options.agent, (open_registry(), open_gateways()), load_settings().logs)
    if options.follow:
        # `tail` waits for changes better than we could, on every system.
        os.execvp("tail", ["tail", "-n", str(options.lines), "-F", *map(str, files)])  # noqa: S606, S607 - as the shell would find it
    lines = [line for path in files for line in last_lines(path, options.lines)]
    if options.json:
        give_json({"files": [str(path) for path in files], "lines": lines})
    elif not lines:
        say(f"nothing was logged yet  ({', '.join(map(str, files))})")
    for line in () if options.json else lines:
        give(line)
    return 0


def log_files(target: str, registries: Iterable[FileRegistry], folder: Path) -> list[Path]:
    """The files of the agent that `target` names: a living one, else one that has left its log.

    Raises:
        NotFound: nobody of that name has logged anything.
        AmbiguousTarget: several fit.
    """
    written = [entry for registry in registries for entry in registry.written()]
    # What lives inside a gateway is told of in the gateway's log.
    agents = {entry.gateway or entry.agent_id for entry in matching(target, written)} or _past_agents(target, folder)
    if len(agents) > 1:
        raise AmbiguousTarget(target, sorted(agents))
    for agent_id in agents:
        files = [path for suffix in ("out", "log") if (path := folder / f"{agent_id}.{suffix}").exists()]
        if files:
            return files
    raise NotFound(f"there is no log of '{target}'", hint=f"logs lie in {folder}")


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a file."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return [line.rstrip("\n") for line in deque(file, maxlen=count)]


def _past_agents(target: str, folder: Path) -> set[str]:
    wanted = target.removeprefix("@")
    named = folder / f"{wanted}.log"
    if named.is_symlink():
        # The last agent of that name has left it.
        return {named.readlink().stem}
    stems = {path.stem for suffix in ("log", "out") for path in folder.glob(f"*.{suffix}") if not path.is_symlink()}
    return {stem for stem in stems if wanted in (stem, stem.removeprefix("synapse-"), _profile_in(stem))}


def _profile_in(agent_id: str) -> str:
    return agent_id.removeprefix("synapse-").rpartition("-")[0]
