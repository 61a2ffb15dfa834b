"""`synapse config`: the settings in force, and where each value comes from."""

from __future__ import annotations

import os
from pathlib import Path

from synapse.cli.render import plain, table
from synapse.cli.speech import give, give_json, say
from synapse.cli.verb_parser import VerbParser
from synapse.runtime.home import USER_FILE, user_folder
from synapse.runtime.settings import FOR_PROJECTS, PREFIX, ProjectSettings, TerminalSize, load_settings

EXAMPLES = """
synapse config
SYNAPSE_QUEUE_LIMIT=50 synapse config --json
"""


def run(arguments: list[str]) -> int:
    """Show the settings and return the exit code."""
    options = VerbParser("config", examples=EXAMPLES).parse_args(arguments)
    settings = load_settings()
    rows, project = settings.as_rows(), settings.project
    if options.json:
        shown = {name: {"value": _shown(value), "source": source} for name, value, source, _ in rows}
        give_json({**shown, "project": _project_fields(project)} if project else shown)
        return 0
    lines = [(name, _written(value), source, meaning) for name, value, source, meaning in rows]
    give(table(("SETTING", "VALUE", "SOURCE", "MEANING"), lines, elastic=3))
    mine = os.path.join(user_folder(os.environ), USER_FILE)
    if project:
        give(f"\nproject: {plain(str(project.project.folder))} ({project.trust.value})")
        if note := project.note(*project.profiles[:1]):
            say(f"Warning: {plain(note)}")
    places = f"in the environment, in {mine}, or in .synapse/config.toml of a project that you trust"
    say(f"\nset them by {PREFIX}<SETTING> {places}")
    return 0


def _project_fields(project: ProjectSettings) -> dict[str, object]:
    return {
        "folder": str(project.project.folder),
        "trust": project.trust.value,
        "problem": project.project.problem,
        "profiles": project.profiles,
        "settings": [name for name in project.wishes if name in FOR_PROJECTS],
        "refused": project.refused,
    }


def _written(value: object) -> str:
    # As TOML and the environment take it.
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown(value: object) -> object:
    return str(value) if isinstance(value, Path | TerminalSize) else value
