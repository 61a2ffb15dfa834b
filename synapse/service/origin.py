"""Where a message comes from: the sender that is proven, claimed or assumed, and how that is shown in the prompt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, cast

from synapse.core import envelope
from synapse.core.address import PERSON, SYSTEM
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import SenderMismatch
from synapse.core.message import Json, Message
from synapse.core.requests import Sender
from synapse.core.task import SHORT_ID_LENGTH, Task
from synapse.core.wire_errors import InvalidField

A_PERSON: Final = Sender(sender_id=PERSON, sender_type="user")
USER: Final = "user"
"""The key of a task's metadata that names who asked for it, where callers have names: at a gateway."""
SENDER_INBOX: Final = "sender_inbox"
"""The inbox of a sender that waits for a reply: it has the same when it is started again at another port."""
TYPED_FROM: Final = "typed_from"
"""Metadata of a message that somebody else than the task's sender added to it: how its header names that one."""


def sender_of(claimed: Sender | None, caller: Caller, entries: Iterable[AgentEntry]) -> tuple[Sender, bool]:
    """Return who the message is from, and whether that is proven by the caller's process.

    Raises:
        SenderMismatch: the claim contradicts the proof, or names the system itself.
    """
    if claimed is not None and claimed.sender_id == SYSTEM:
        raise SenderMismatch(f"'{SYSTEM}' is a name that only Synapse itself uses")
    if caller.is_agent:
        if claimed is not None and claimed.sender_id not in ("", caller.agent_id):
            raise SenderMismatch(
                f"the message says it is from '{claimed.sender_id}', but the calling process belongs to "
                f"'{caller.agent_id}'",
                hint="leave `--from` out; the sender is found by itself",
            )
        return _described(caller.agent_id, claimed, entries), True
    if claimed is None or not claimed.sender_id:
        return A_PERSON, caller.is_person
    return _described(claimed.sender_id, claimed, entries), claimed.sender_id == PERSON and caller.is_person


def origin_metadata(sender: Sender, *, verified: bool) -> dict[str, Any]:
    """The contract's `metadata.sender`, exactly its three fields, and beside it whether the sender is proven."""
    return {
        "sender": {
            "sender_id": sender.sender_id,
            "sender_type": sender.sender_type,
            "sender_endpoint": sender.sender_endpoint,
        },
        "sender_verified": verified,
    }


def check_id(field: str, value: object) -> None:
    """Raise InvalidField unless `value` is missing or can be an id: headers show ids, and a reply is found by one."""
    if value is not None and value != "" and not envelope.is_id(value):
        raise InvalidField(
            field,
            "is no task id",
            hint="an id has 1 to 64 letters (a to z), digits, '_' and '-'; a header and `synapse tasks` show it",
        )


def marked_with_sender(message: Message, sender: Sender, caller: Caller, task: Task, *, verified: bool) -> Message:
    """Return `message`, which goes on with `task`, with a note of who it is from unless that is the task's sender."""
    origin = origin_metadata(sender, verified=verified) | ({USER: caller.name} if caller.name else {})
    metadata = {key: value for key, value in message.metadata.items() if key != TYPED_FROM}
    typed_from = envelope.typed_sender(origin)
    if typed_from != envelope.typed_sender(task.metadata):
        metadata[TYPED_FROM] = typed_from
    return message if metadata == message.metadata else replace(message, metadata=metadata)


def sender_in(metadata: Json) -> Sender:
    """The sender that a task's metadata names; a person when it names none."""
    claimed = metadata.get("sender")
    fields = cast("dict[str, Any]", claimed) if isinstance(claimed, dict) else {}
    if not fields.get("sender_id"):
        return A_PERSON
    return Sender(
        sender_id=str(fields["sender_id"]),
        sender_type=str(fields.get("sender_type", "")),
        sender_endpoint=str(fields.get("sender_endpoint", "")),
        inbox=str(metadata.get(SENDER_INBOX) or ""),
    )


def awaits_reply(task: Task) -> bool:
    """The sender said that it waits for a reply."""
    return task.metadata.get("response_expected") is True


def sender_task_id(task: Task) -> str:
    """The task on the sender's own host that a reply answers, or empty."""
    value = task.metadata.get("sender_task_id")
    return value if isinstance(value, str) else ""


def envelope_line(task: Task, message: Message) -> str:
    """The line that is typed. With `:R` it shows the sender's task id, for `--reply-to`; without, our own."""
    sender = envelope.typed_sender(task.metadata)
    is_opening = message == task.message
    # Nobody can claim to be the system (see `sender_of`); a later message of its task may be anybody's.
    if sender == SYSTEM and is_opening:
        return envelope.wrap_own(message.text, short_id=task.short_id, sender=sender)
    if not is_opening:
        sender = str(message.metadata.get(TYPED_FROM) or sender)
    expected = awaits_reply(task)
    waiting = sender_task_id(task) if expected else ""
    shown = waiting if envelope.is_id(waiting) else task.id
    return envelope.wrap(
        message.text,
        short_id=shown[:SHORT_ID_LENGTH],
        sender=sender,
        response_expected=expected,
    )


def _described(sender_id: str, claimed: Sender | None, entries: Iterable[AgentEntry]) -> Sender:
    """Fill in type, endpoint and inbox from the registry, which knows better than a claim."""
    for entry in entries:
        if entry.agent_id == sender_id:
            return Sender(
                sender_id=sender_id, sender_type=entry.agent_type, sender_endpoint=entry.endpoint, inbox=entry.inbox
            )
    return claimed if claimed is not None else Sender(sender_id=sender_id)
