"""`synapse config`: the settings in force, and where each value comes from."""

from __future__ import annotations

import os
from pathlib import Path

from synapse.cli.render import table
from synapse.cli.speech import give, give_json, say
from synapse.cli.verb_parser import VerbParser
from synapse.runtime.home import USER_FILE, user_folder
from synapse.runtime.settings import PREFIX, TerminalSize, load_settings

EXAMPLES = """
synapse config
SYNAPSE_QUEUE_LIMIT=50 synapse config --json
"""


def run(arguments: list[str]) -> int:
    """Show the settings and return the exit code."""
    options = VerbParser("config", examples=EXAMPLES).parse_args(arguments)
    rows = load_settings().as_rows()
    if options.json:
        give_json({name: {"value": _shown(value), "source": source} for name, value, source, _ in rows})
        return 0
    lines = [(name, _written(value), source, meaning) for name, value, source, meaning in rows]
    give(table(("SETTING", "VALUE", "SOURCE", "MEANING"), lines, elastic=3))
    mine = os.path.join(user_folder(os.environ), USER_FILE)
    say(f"\nset them by {PREFIX}<SETTING> in the environment, in .synapse/config.toml of a project, or in {mine}")
    return 0


def _written(value: object) -> str:
    # As TOML and the environment take it.
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: object) -> object:
    return str(value) if isinstance(value, Path | TerminalSize) else value
