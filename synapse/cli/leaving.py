"""`synapse send --queue` to an agent that does not run: the message waits in the store until it starts."""

from __future__ import annotations

import asyncio
from typing import Any

from synapse.cli.hosts import current_folder, find_agent, open_registry, post_message
from synapse.cli.options import Options
from synapse.cli.send import report_sent
from synapse.cli.speech import give_json, say
from synapse.core.address import matching
from synapse.core.agent import AgentEntry
from synapse.core.errors import Conflict, QueueFull
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.task import DEFAULT_PRIORITY
from synapse.dialects.synapse.projection import task_object
from synapse.runtime.place import inbox_of
from synapse.runtime.profiles import profile_names
from synapse.runtime.settings import Settings, load_settings
from synapse.runtime.unowned import open_unowned
from synapse.transports.client import ANSWER_SECONDS

_ID_BEGIN = "synapse-"


def leave(target: str, past: list[AgentEntry], body: dict[str, Any], options: Options) -> int:
    """Leave the message for the agent that `target` means, and return the exit code."""
    settings = load_settings(folder=current_folder())
    inbox, agent_id = inbox_for(target, past, settings)
    try:
        task = asyncio.run(_leave(inbox, agent_id, body, options, settings))
    except QueueFull:
        raise
    except Conflict:
        return _send(target, body, options)
    if options.has("--json"):
        give_json({"task": task, "reply": None, "receipt": "queued"})
    else:
        say(f"[→ {target}] does not run; the message waits for it  (task {task['id'][:8]}, synapse queue)")
    return 0


def _send(target: str, body: dict[str, Any], options: Options) -> int:
    """The agent has started meanwhile, so it is asked itself."""
    registry = open_registry()
    entry = find_agent(target, registry)
    task = post_message(entry, body, registry, priority=options.text("--priority"), timeout=ANSWER_SECONDS)
    report_sent(entry, task, options)
    return 0


def inbox_for(target: str, past: list[AgentEntry], settings: Settings) -> tuple[str, str]:
    """The inbox that the agent will have, and the agent id as far as it is known.

    An agent that was here is known by its entry, or by the store; a profile means the one that will run in this folder;
    any other word is a given name.
    """
    known = matching(target, past)
    if known and known[0].inbox:
        return known[0].inbox, known[0].agent_id
    wanted = target.removeprefix("@").removeprefix(_ID_BEGIN)
    for profile in profile_names(settings.profile_folders):
        if wanted == profile:
            return inbox_of(profile, "", current_folder()), profile
        if wanted.startswith(f"{profile}-") and wanted[len(profile) + 1 :].isdigit():
            return inbox_of(profile, "", current_folder()), f"{_ID_BEGIN}{wanted}"
    return target.removeprefix("@"), target.removeprefix("@")


async def _leave(
    inbox: str, agent_id: str, body: dict[str, Any], options: Options, settings: Settings
) -> dict[str, Any]:
    message = Message(
        message_id=MessageId(body["message"]["message_id"]),
        role=Role.USER,
        parts=tuple(TextPart(text=part["text"]) for part in body["message"]["parts"]),
    )
    async with open_unowned(settings) as unowned:
        if agent_id.startswith(_ID_BEGIN):
            inbox = await unowned.last_inbox(agent_id) or inbox
        task = await unowned.leave(
            inbox,
            message,
            agent_id=agent_id,
            priority=int(options.text("--priority") or DEFAULT_PRIORITY),
            ttl=options.seconds("--ttl"),
            metadata={**body["metadata"], "sender_verified": False},
        )
    return task_object(task)
