"""Where a message comes from: the sender that is proven, claimed or assumed, and how that is shown in the prompt.

What an agent takes in: parts of which types, and whether a message id names one message.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from synapse.core import text
from synapse.core.address import PERSON, SYSTEM
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import InvalidField, SenderMismatch, UnsupportedMediaType
from synapse.core.message import DataPart, FilePart, Json, Message, Role, TextPart, media_type_of
from synapse.core.requests import Sender
from synapse.core.task import SHORT_ID_LENGTH, Task

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
    if value is not None and value != "" and not text.is_id(value):
        raise InvalidField(
            field,
            "is no task id",
            hint="an id has 1 to 64 letters (a to z), digits, '_' and '-'; a header and `synapse tasks` show it",
        )


def marked_with_sender(message: Message, sender: Sender, caller: Caller, task: Task, *, verified: bool) -> Message:
    """Return `message`, which goes on with `task`, with a note of who it is from unless that is the task's sender."""
    origin = origin_metadata(sender, verified=verified) | ({USER: caller.name} if caller.name else {})
    metadata = {key: value for key, value in message.metadata.items() if key != TYPED_FROM}
    typed_from = text.typed_sender(origin)
    if typed_from != text.typed_sender(task.metadata):
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
    sender = text.typed_sender(task.metadata)
    is_opening = message == task.message
    # Nobody can claim to be the system (see `sender_of`); a later message of its task may be anybody's.
    if sender == SYSTEM and is_opening:
        return text.wrap_own(message.text, short_id=task.short_id, sender=sender)
    if not is_opening:
        sender = str(message.metadata.get(TYPED_FROM) or sender)
    expected = awaits_reply(task)
    waiting = sender_task_id(task) if expected else ""
    shown = waiting if text.is_id(waiting) else task.id
    return text.wrap(
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


TEXT: Final = ("text/plain",)
MODES: Final = (*TEXT, "application/json", "application/octet-stream")
"""What cards say that an agent gives, and at least takes: texts, data, and files, which lie beside the message."""
ANY_TYPE: Final = "*/*"
"""What the card of an agent that takes everything says last, as a media range (RFC 9110 §12.5.1)."""
_UNNAMED: Final[dict[type, str]] = dict(zip((TextPart, DataPart, FilePart), MODES, strict=True))
"""What a part is that does not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What one agent takes. Most take parts of any type, and know a message again by its id."""

    media_types: tuple[str, ...] = ()
    """The types of parts that it takes; empty takes all."""
    repeatable_ids: re.Pattern[str] | None = None
    """Ids that do not identify a message: a second message with such an id is a new one. Conformance kits send such."""

    @property
    def as_text(self) -> str:
        """The types as an agent's entry in the registry has them."""
        return " ".join(self.media_types)

    def check(self, message: Message) -> None:
        """Raise UnsupportedMediaType for a part that the agent does not take."""
        for media_type in self._foreign_in(message):
            raise UnsupportedMediaType(
                f"incompatible content type: parts of '{media_type}' are not supported by this agent",
                hint=f"it takes {', '.join(self.media_types)}",
            )

    def takes(self, message: Message) -> bool:
        """Whether the agent takes all of its parts."""
        return not self._foreign_in(message)

    def _foreign_in(self, message: Message) -> Sequence[str]:
        if not self.media_types:
            return ()
        named = (media_type_of(part) or _UNNAMED[type(part)] for part in message.parts)
        return [media_type for media_type in named if media_type not in self.media_types]

    def digest(self, message: Message) -> str:
        """What a message is known by when it comes again; empty when it is always a new one."""
        is_repeatable = self.repeatable_ids is not None and self.repeatable_ids.search(message.message_id) is not None
        return "" if is_repeatable else message_digest(message)


ANYTHING: Final = Acceptance()


def shown_modes(media_types: Sequence[str]) -> tuple[str, ...]:
    """What the card of an agent says that takes these types; none means all."""
    # Types by name come first: some readers look for theirs and know no ranges.
    return tuple(media_types) or (*MODES, ANY_TYPE)


def message_digest(message: Message) -> str:
    """The same for the same role and parts, in every version of Synapse: digests are kept in the store."""
    said = _plainly(message) or repr((message.role, message.parts))
    return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()[:32]


def _plainly(message: Message) -> str:
    """What `repr` says of nearly every message, in a fifth of its time; nothing for others."""
    match message.parts:
        case (TextPart() as part,) if not (part.name or part.media_type or part.metadata):
            text = f"TextPart(text={part.text!r}, name='', media_type='', metadata={{}})"
            return f"({_ROLES[message.role]}, ({text},))"
        case _:
            return ""


_ROLES: Final = {role: repr(role) for role in Role}
