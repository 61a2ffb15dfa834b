"""The words that completion scripts ask for while a person waits for Tab: agents and tasks.

They come as lines, each a word, a tab and a text that some shells show beside it. This must be as quick as
`synapse list`, so it loads neither the settings nor the parser.
"""

import os

from synapse.client.hosts import current_folder, open_registry, state_folder
from synapse.client.lines import cut, first_line, plain, short_path
from synapse.core.address import SYSTEM, short_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

AGENTS = "agents"
REMOTE_AGENTS = "remote-agents"
TASKS = "tasks"
OPEN_TASKS = "open-tasks"
WORDS_OPTION = "--words"
TAKE_AGENTS = (
    "answer",
    "approve",
    "attach",
    "deny",
    "diff",
    "logs",
    "queue",
    "restart",
    "send",
    "show",
    "status",
    "stop",
    "tasks",
    "usage",
)
TAKE_REMOTE_AGENTS = ("answer", "approve", "attach", "deny", "queue", "send", "show", "status", "tasks")
TAKE_TASKS = ("show", "status")
TAKE_OPEN_TASKS = ("answer", "approve", "cancel", "deny", "resolve")
TAKE_PROFILES = ("start",)
MOST_TASKS = 40
TEXT_COLUMNS = 60
LINK_SECONDS = 0.5
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-@")


def word_lines(kind: str) -> "Iterator[str]":
    """Yields the lines for AGENTS, REMOTE_AGENTS, TASKS or OPEN_TASKS."""
    if kind == AGENTS:
        found = _agents()
    else:
        found = _remote_agents() if kind == REMOTE_AGENTS else _tasks(only_open=kind == OPEN_TASKS)
    for word, text in found:
        # Shells may expand the words, so only harmless ones are printed. The texts are shown as they are.
        if word and _LETTERS.issuperset(word):
            yield f"{word}\t{cut(plain(text), TEXT_COLUMNS)}"


def _agents() -> "Iterator[tuple[str, str]]":
    entries = open_registry().entries()
    found = {entry.agent_type: f"the {entry.agent_type} agent" for entry in entries}
    found |= {short_name(entry): f"{entry.agent_type} in {short_path(entry.working_dir)}" for entry in entries}
    yield from sorted(found.items())


def _remote_agents() -> "Iterator[tuple[str, str]]":
    home = state_folder(os.environ, current_folder())
    if not os.path.exists(os.path.join(home, "fleet")):
        return
    from synapse.client.link import fleet_agents
    from synapse.core.errors import SynapseError

    try:
        agents, _ = fleet_agents(home, timeout=LINK_SECONDS)
    except SynapseError:
        return
    for entry, _ in agents:
        yield entry.name, f"{entry.agent_type} in {entry.working_dir}"


def _tasks(*, only_open: bool) -> "Iterator[tuple[str, str]]":
    from synapse.store.recent import recent_tasks

    store = os.path.join(state_folder(os.environ, current_folder()), "store.db")
    for task_id, inbox, state, text in recent_tasks(
        store, MOST_TASKS, only_open=only_open, system=SYSTEM, scope="local"
    ):
        yield task_id[:8], f"{inbox.partition('@')[0]}, {state.replace('_', ' ')}: {first_line(text)}"
