"""`synapse send --queue` to an agent that is not running: stores the message until the agent starts."""

from __future__ import annotations

import select
from typing import Any, Final

from synapse.cli.options import Options, report_sent
from synapse.cli.output import print_json, print_notice
from synapse.client.hosts import current_folder, find_agent, open_registry, post_message
from synapse.client.lines import plain
from synapse.config import process
from synapse.config.process import SystemClock
from synapse.config.settings import Settings, load_settings, profile_names
from synapse.core.address import matching, nearest
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import BodyTooLarge, Conflict, QueueFull
from synapse.core.json_text import encode
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.requests import SendMessage
from synapse.core.task import DEFAULT_PRIORITY
from synapse.dialects.task_json import task_object
from synapse.host.conversations import last_runs
from synapse.host.identity import check_name, inbox_of
from synapse.host.stopped import open_stopped
from synapse.registry.files import FileRegistry
from synapse.tasks.senders import SenderRule

_ID_PREFIX: Final = "synapse-"
_USED_SETTINGS: Final = ("max_body_bytes", "queue_limit", "message_ttl")
_START_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05


def send_later(target: str, past: list[AgentEntry], body: dict[str, Any], options: Options) -> int:
    """Queues the message for the agent that `target` names and returns the exit code."""
    settings = load_settings(folder=current_folder())
    if settings.project and (note := settings.project.note(_without_prefix(target), _USED_SETTINGS)):
        print_notice(f"Warning: {plain(note)}")
    if len(encode(body)) > settings.max_body_bytes:
        raise BodyTooLarge(settings.max_body_bytes)
    inbox, agent_id = inbox_for(target, past, settings)
    try:
        task = process.run(_enqueue(inbox, agent_id, body, options, settings))
    except QueueFull:
        raise
    except Conflict as conflict:
        return _send_to_started(target, body, options, conflict)
    if options.has("--json"):
        print_json({"task": task, "reply": None, "receipt": "queued"})
    else:
        print_notice(f"[→ {target}] queued until it starts  (task {task['id'][:8]}, synapse queue)")
    _warn_of_refusal(inbox, str(task["id"]), settings)
    if agent_id == inbox:
        _warn_of_misspelt_profile(agent_id, str(task["id"]), settings)
    return 0


def _warn_of_refusal(inbox: str, task_id: str, settings: Settings) -> None:
    """Prints a warning if the agent accepted some senders only in its last run: nothing proves who queued a message."""
    last = next((run.entry for run in last_runs(settings.home) if run.entry.inbox == inbox), None)
    rule = SenderRule.of(last) if last else None
    if rule and not rule.is_open:
        print_notice(
            f"Warning: {rule.agent} accepts messages only from {plain(rule.in_words())}, and refuses what was queued "
            f"while it did not run. Send it when it runs  (synapse cancel {task_id[:8]})"
        )


def _warn_of_misspelt_profile(name: str, task_id: str, settings: Settings) -> None:
    """Prints a warning if the given name of a new agent resembles a profile: it may be a mistake."""
    meant = nearest(name, profile_names(settings.profile_sources))
    if meant:
        print_notice(
            f"Warning: '{name}' is not a profile; did you mean '{meant}'? The message is queued for an agent started "
            f"with --name {name}  (synapse cancel {task_id[:8]})"
        )


def _send_to_started(target: str, body: dict[str, Any], options: Options, conflict: Conflict) -> int:
    """Sends the message to an agent that has taken its inbox meanwhile."""
    registry = open_registry()
    if not wait_until_started(target, registry):
        raise conflict
    entry = find_agent(target, registry)
    task = post_message(entry, body, registry, warn=print_notice, priority=options.text("--priority"))
    report_sent(entry, task, options)
    return 0


def wait_until_started(target: str, registry: FileRegistry) -> bool:
    """Waits until the agent is registered, which follows shortly after it takes its inbox; returns whether it is."""
    clock = SystemClock()
    deadline = clock.monotonic() + _START_SECONDS
    while not matching(target, registry.entries()):
        if clock.monotonic() >= deadline:
            return False
        # A new file in the registry sends no notification, so this polls.
        select.select([], [], [], _POLL_SECONDS)
    return True


def inbox_for(target: str, past: list[AgentEntry], settings: Settings) -> tuple[str, str]:
    """Returns the inbox that the agent will have, and its agent id as far as it is known.

    An earlier agent is known by its registry entry; a profile means the agent that will run in this folder; any other
    word is a given name.

    Raises:
        InvalidRequest: no agent can have such a name.
    """
    known = matching(target, past)
    if known and known[0].inbox:
        return known[0].inbox, known[0].agent_id
    wanted = _without_prefix(target)
    for profile in profile_names(settings.profile_sources):
        if wanted == profile:
            return inbox_of(profile, "", current_folder()), profile
        if wanted.startswith(f"{profile}-") and wanted[len(profile) + 1 :].isdigit():
            return inbox_of(profile, "", current_folder()), f"{_ID_PREFIX}{wanted}"
    name = target.removeprefix("@")
    check_name(name, settings)
    return name, name


def _without_prefix(target: str) -> str:
    return target.removeprefix("@").removeprefix(_ID_PREFIX)


async def _enqueue(
    inbox: str, agent_id: str, body: dict[str, Any], options: Options, settings: Settings
) -> dict[str, Any]:
    message = Message(
        message_id=MessageId(body["message"]["message_id"]),
        role=Role.USER,
        parts=tuple(TextPart(text=part["text"]) for part in body["message"]["parts"]),
    )
    request = SendMessage(
        message=message,
        dialect="synapse",
        priority=int(options.text("--priority") or DEFAULT_PRIORITY),
        metadata=body["metadata"],
    )
    async with open_stopped(settings) as stopped:
        if agent_id.startswith(_ID_PREFIX):
            inbox = await stopped.last_inbox(agent_id) or inbox
        task = await stopped.of(inbox, agent_id).send(request, Caller())
    return task_object(task)
