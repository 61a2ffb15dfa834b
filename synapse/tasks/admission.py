"""Checks a message on its way in: who sent it (proven, claimed or assumed), and whether the agent accepts its parts.

Also builds the header line that shows the sender in the agent's prompt, and the digest that identifies a repeated
message.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from synapse.core import text
from synapse.core.address import PERSON, SYSTEM, UNVERIFIED, on_machine, remote_inbox
from synapse.core.agent import AgentEntry
from synapse.core.caller import Caller
from synapse.core.errors import InvalidField, SenderMismatch, UnsupportedMediaType
from synapse.core.message import A_PERSON, DataPart, FilePart, Message, Role, Sender, TextPart, media_type_of
from synapse.core.task import SHORT_ID_LENGTH, Task

TYPED_FROM: Final = "typed_from"
"""Metadata key of a message that another sender than the task's added: the sender that its header shows."""
TEXT: Final = ("text/plain",)
MODES: Final = (*TEXT, "application/json", "application/octet-stream")
"""The media types that cards list as output, and at least as input: text, data, and files, which are stored beside the
message."""
ANY_TYPE: Final = "*/*"
"""The last input type on the card of an agent that accepts everything, a media range (RFC 9110 §12.5.1)."""
_DEFAULT_TYPES: Final[dict[type, str]] = dict(zip((TextPart, DataPart, FilePart), MODES, strict=True))
"""The media type of a part that names none."""
_LONGEST_REMOTE_NAME: Final = 64
_REMOTE_NAME: Final = re.compile(rf"[\w.-]{{1,{_LONGEST_REMOTE_NAME}}}", re.ASCII)
_NOT_IN_REMOTE_NAME: Final = re.compile(r"[^\w.-]", re.ASCII)
_ROLES: Final = {role: repr(role) for role in Role}


def sender_of(claimed: Sender | None, caller: Caller, entries: Iterable[AgentEntry]) -> tuple[Sender, bool]:
    """Returns who the message is from, and whether the caller's process proves it, or its machine vouches for it.

    Raises:
        SenderMismatch: the claim contradicts the proof, or names Synapse itself.
    """
    if caller.remote_sender:
        return _remote_sender(claimed, caller)
    if claimed is not None and claimed.sender_id == SYSTEM:
        raise SenderMismatch(f"the sender '{SYSTEM}' is reserved for Synapse itself")
    if caller.is_agent:
        if claimed is not None and claimed.sender_id not in ("", caller.agent_id):
            raise SenderMismatch(
                f"the message says it is from '{claimed.sender_id}', but the calling process belongs to "
                f"'{caller.agent_id}'",
                hint="leave out `--from`; Synapse detects the sender",
            )
        return _described(caller.agent_id, claimed, entries), True
    if caller.machine:
        # A caller of a gateway there. Whatever it claims, it is no agent and no person of this machine.
        return _on_machine(claimed if claimed is not None and claimed.sender_id else A_PERSON, caller.machine), False
    if claimed is None or not claimed.sender_id:
        return A_PERSON, caller.is_person
    return _described(claimed.sender_id, claimed, entries), claimed.sender_id == PERSON and caller.is_person


def remote_name(name: str) -> str:
    """Returns `name` as a sender's name that other machines take: with '.' for other characters, and cut."""
    return _NOT_IN_REMOTE_NAME.sub(".", name)[:_LONGEST_REMOTE_NAME]


def _remote_sender(claimed: Sender | None, caller: Caller) -> tuple[Sender, bool]:
    """Returns the sender on another machine, as this machine names it: `synapse-claude-8100@laptop`.

    The claim gives only its type and its inbox there.
    """
    name = caller.remote_sender.removeprefix(UNVERIFIED)
    if not _REMOTE_NAME.fullmatch(name) or name == SYSTEM:
        raise SenderMismatch(
            f"'{text.safe_line(name)}' cannot be the name of a sender on {caller.machine}",
            hint="the link of that machine names its agents by their ids",
        )
    claimed = claimed or Sender(sender_id=name)
    kind = "user" if name == PERSON else claimed.sender_type
    sender = _on_machine(replace(claimed, sender_id=name, sender_type=kind), caller.machine)
    return sender, name == caller.remote_sender


def _on_machine(sender: Sender, machine: str) -> Sender:
    """Returns a sender of another machine as this machine names it and its inbox."""
    return Sender(
        sender_id=on_machine(sender.sender_id, machine),
        sender_type=sender.sender_type,
        inbox=remote_inbox(sender.inbox, machine) if sender.inbox else "",
    )


def check_id(field: str, value: object) -> None:
    """Raises InvalidField unless `value` is missing or a valid id: headers show ids, and replies are found by them."""
    if value is not None and value != "" and not text.is_id(value):
        raise InvalidField(
            field,
            "is not a valid task id",
            hint="an id has 1 to 64 letters (a to z), digits, '_' and '-'; a header and `synapse tasks` show it",
        )


def marked_with_sender(message: Message, sender: Sender, caller: Caller, task: Task, *, verified: bool) -> Message:
    """Returns `message`, which continues `task`, with its sender in the metadata unless that is the task's sender."""
    metadata = {key: value for key, value in message.metadata.items() if key != TYPED_FROM}
    typed_from = text.sender_name(sender.sender_id, verified=verified, user=caller.name)
    if typed_from != task.sender_name:
        metadata[TYPED_FROM] = typed_from
    return message if metadata == message.metadata else replace(message, metadata=metadata)


def envelope_line(task: Task, message: Message) -> str:
    """Returns the line to type. With `:R` it shows the sender's task id, for `--reply-to`; without, our own."""
    sender = task.sender_name
    is_opening = message == task.message
    # No sender can claim to be the system (see `sender_of`); a later message of its task may come from any sender.
    if sender == SYSTEM and is_opening:
        return text.wrap_own(message.text, short_id=task.short_id, sender=sender)
    if not is_opening:
        sender = str(message.metadata.get(TYPED_FROM) or sender)
    waiting = task.reply_to.task_id if task.reply_to else ""
    shown = waiting if text.is_id(waiting) else task.id
    return text.wrap(
        message.text,
        short_id=shown[:SHORT_ID_LENGTH],
        sender=sender,
        response_expected=task.reply_to is not None,
    )


def _described(sender_id: str, claimed: Sender | None, entries: Iterable[AgentEntry]) -> Sender:
    """Returns the sender with type, endpoint and inbox from the registry, which outranks a claim."""
    for entry in entries:
        if entry.agent_id == sender_id:
            return Sender(
                sender_id=sender_id, sender_type=entry.agent_type, sender_endpoint=entry.endpoint, inbox=entry.inbox
            )
    return claimed if claimed is not None else Sender(sender_id=sender_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What one agent accepts. Most accept parts of any type, and recognise a repeated message by its id."""

    media_types: tuple[str, ...] = ()
    """The accepted types of parts; empty accepts all."""
    repeatable_ids: re.Pattern[str] | None = None
    """Ids that do not identify a message: a second message with such an id is new. Conformance kits send such ids."""

    @property
    def as_text(self) -> str:
        """The types as they stand in an agent's registry entry."""
        return " ".join(self.media_types)

    def check(self, message: Message) -> None:
        """Raises UnsupportedMediaType for a part that the agent does not accept."""
        for media_type in self._foreign_in(message):
            raise UnsupportedMediaType(
                f"incompatible content type: parts of '{media_type}' are not supported by this agent",
                hint=f"it accepts {', '.join(self.media_types)}",
            )

    def takes(self, message: Message) -> bool:
        """Decides whether the agent accepts all parts of the message."""
        return not self._foreign_in(message)

    def _foreign_in(self, message: Message) -> Sequence[str]:
        if not self.media_types:
            return ()
        named = (media_type_of(part) or _DEFAULT_TYPES[type(part)] for part in message.parts)
        return [media_type for media_type in named if media_type not in self.media_types]

    def digest(self, message: Message) -> str:
        """Returns the digest that identifies a repeated message; empty when every message counts as new."""
        is_repeatable = self.repeatable_ids is not None and self.repeatable_ids.search(message.message_id) is not None
        return "" if is_repeatable else message_digest(message)


ANYTHING: Final = Acceptance()


def shown_modes(media_types: Sequence[str]) -> tuple[str, ...]:
    """Returns the input types for the card of an agent that accepts `media_types`; empty means all."""
    # Named types come first: some readers look for theirs and do not understand ranges.
    return tuple(media_types) or (*MODES, ANY_TYPE)


def message_digest(message: Message) -> str:
    """Returns a digest of role and parts. It must not change between versions: the store keeps digests."""
    content = _plain_repr(message) or repr((message.role, message.parts))
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:32]


def _plain_repr(message: Message) -> str:
    """Returns what `repr` returns for a message of one plain text, in a fifth of its time; empty for others."""
    match message.parts:
        case (TextPart() as part,) if not (part.name or part.media_type or part.metadata):
            text = f"TextPart(text={part.text!r}, name='', media_type='', metadata={{}})"
            return f"({_ROLES[message.role]}, ({text},))"
        case _:
            return ""
