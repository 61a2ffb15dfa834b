"""The keys that Synapse writes into a task's metadata, and the fields of `Task` that they become.

The store and every wire keep these keys among those of the sender, in the order in which they were written. So a task's
metadata stays whole, as it is stored and shown, and no code but this module looks into it: `reply_fields` reads the
keys once, when an event or a snapshot makes a task, and all others read the fields.

    sender, sender_verified            the fields of the same names
    sender_inbox                       `sender.inbox`
    user                               `user`
    response_expected, sender_task_id  `reply_to`
    replied                            `replied`
    waits_for, waits_for_inbox         `waits_for`
    asked_in, delivered_as, delivers   the fields of the same names
    asks_person                        the field of the same name
    waiter_left, waiter_released       the fields of the same names
    question                           `question`, while it is open

Of `answered` (who answered the last question, and how), `in_reply_to`, `ttl` and `reason` a task has no field: they are
only shown. `answered_with` (the id of the relayed message that answered) and `waiting_behind` (the inboxes that wait
behind a sender on another machine) have functions here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypedDict, cast

from synapse.core.caller import GATEWAY_MACHINE, GATEWAY_SCOPE
from synapse.core.events import MetadataChanged
from synapse.core.message import A_PERSON, Json, Sender
from synapse.core.question import Question, question_fields, question_from
from synapse.core.task import ReplyTo, Task, WaitTarget
from synapse.core.text import sender_name

_SENDER: Final = "sender"
_VERIFIED: Final = "sender_verified"
_SENDER_INBOX: Final = "sender_inbox"
_USER: Final = "user"
_RESPONSE_EXPECTED: Final = "response_expected"
_SENDER_TASK: Final = "sender_task_id"
_REPLIED: Final = "replied"
_WAITS_FOR: Final = "waits_for"
_WAITS_FOR_INBOX: Final = "waits_for_inbox"
_ASKS_PERSON: Final = "asks_person"
_ASKED_IN: Final = "asked_in"
_WAITER_LEFT: Final = "waiter_left"
_WAITER_RELEASED: Final = "waiter_released"
_DELIVERED_AS: Final = "delivered_as"
_DELIVERS: Final = "delivers"
_QUESTION: Final = "question"
_ANSWERED: Final = "answered"
_ANSWERED_WITH: Final = "answered_with"
_WAITING: Final = "waiting_behind"

_RARE_KEYS: Final = frozenset(
    {
        _USER,
        _RESPONSE_EXPECTED,
        _REPLIED,
        _WAITS_FOR,
        _WAITER_LEFT,
        _WAITER_RELEASED,
        _DELIVERED_AS,
        _DELIVERS,
        _ASKED_IN,
        _ASKS_PERSON,
        _QUESTION,
    }
)
"""The keys that most tasks do not have, and without which the others but the sender's mean nothing."""
_FIELD_KEYS: Final = _RARE_KEYS | {_SENDER, _VERIFIED, _SENDER_INBOX, _SENDER_TASK, _WAITS_FOR_INBOX}
RESERVED_KEYS: Final = _FIELD_KEYS | {_ANSWERED, _ANSWERED_WITH, _WAITING, "in_reply_to", "ttl", "reason"}
"""Metadata keys that Synapse relies on or shows to people; callers cannot change them."""
_DROPPED_KEYS: Final = frozenset(
    {
        _QUESTION,
        _ANSWERED,
        _ANSWERED_WITH,
        _WAITING,
        _REPLIED,
        _WAITER_LEFT,
        _WAITER_RELEASED,
        _DELIVERED_AS,
        _DELIVERS,
        _ASKED_IN,
        _ASKS_PERSON,
        _USER,
        _SENDER_INBOX,
        "reason",
    }
)
"""Metadata keys that only Synapse writes, dropped from messages: a sender could fake a question or a caller's name."""
_FLEET_KEYS: Final = frozenset({GATEWAY_SCOPE, GATEWAY_MACHINE})


class ReplyFields(TypedDict, total=False):
    """The fields of a `Task` that its metadata determines. One that is left out has its default value."""

    sender: Sender
    sender_verified: bool
    user: str
    reply_to: ReplyTo | None
    replied: str
    waits_for: WaitTarget | None
    asks_person: bool
    asked_in: str
    waiter_left: bool
    waiter_released: bool
    delivered_as: str
    delivers: str
    last_question: Question | None


_DEFAULTS: Final[ReplyFields] = {
    "sender": A_PERSON,
    "sender_verified": False,
    "user": "",
    "reply_to": None,
    "replied": "",
    "waits_for": None,
    "asks_person": False,
    "asked_in": "",
    "waiter_left": False,
    "waiter_released": False,
    "delivered_as": "",
    "delivers": "",
    "last_question": None,
}


_TEXT_KEYS: Final[tuple[Literal["user", "replied", "asked_in", "delivered_as", "delivers"], ...]] = (
    _USER,
    _REPLIED,
    _ASKED_IN,
    _DELIVERED_AS,
    _DELIVERS,
)
"""The keys that are fields of the same name, and texts."""
_TRUE_KEYS: Final[tuple[Literal["asks_person", "waiter_left", "waiter_released"], ...]] = (
    _ASKS_PERSON,
    _WAITER_LEFT,
    _WAITER_RELEASED,
)
"""The keys that are fields of the same name, and true if they are there."""


def shown_metadata(metadata: Json) -> Json:
    """Returns a task's metadata as clients see it: without the keys that links and gateways write for each other."""
    if _FLEET_KEYS.isdisjoint(metadata):
        return metadata
    return {key: value for key, value in metadata.items() if key not in _FLEET_KEYS}


def reply_fields(metadata: Json) -> ReplyFields:  # noqa: C901 - a case for each kind of key
    """Returns the fields that the keys in a task's metadata become. Ignores values of a wrong type."""
    fields: ReplyFields = {"sender": sender_in(metadata), "sender_verified": metadata.get(_VERIFIED) is True}
    # Hot path: every message comes here, and most have no other key of ours.
    if _RARE_KEYS.isdisjoint(metadata):
        return fields
    get = metadata.get
    for key in _TEXT_KEYS:
        if text := _text(get(key)):
            fields[key] = text
    for mark in _TRUE_KEYS:
        if get(mark) is True:
            fields[mark] = True
    if get(_RESPONSE_EXPECTED) is True:
        fields["reply_to"] = ReplyTo(task_id=_text(get(_SENDER_TASK)))
    if asked := get(_WAITS_FOR):
        # A value that is no agent's id matches no agent, so the task fails as one whose agent is lost.
        fields["waits_for"] = WaitTarget(agent_id=str(asked), inbox=_text(get(_WAITS_FOR_INBOX)))
    if question := question_from(get(_QUESTION)):
        fields["last_question"] = question
    return fields


def changed_fields(metadata: Json, changes: Json) -> ReplyFields:
    """Returns the fields that `changes` of some keys may have changed, from the whole metadata after them."""
    return {} if _FIELD_KEYS.isdisjoint(changes) else {**_DEFAULTS, **reply_fields(metadata)}


def sender_in(metadata: Json) -> Sender:
    """Returns the sender that the metadata of a task or a message names; a person when it names none."""
    claimed = metadata.get(_SENDER)
    # Most messages come from a person; the comparison takes a fifth of the time that reading a sender takes.
    if (claimed == _A_PERSON_FIELDS and _SENDER_INBOX not in metadata) or not isinstance(claimed, dict):
        return A_PERSON
    fields = cast("dict[str, Any]", claimed)
    if not fields.get("sender_id"):
        return A_PERSON
    return Sender(
        sender_id=str(fields["sender_id"]),
        sender_type=str(fields.get("sender_type", "")),
        sender_endpoint=str(fields.get("sender_endpoint", "")),
        inbox=str(metadata.get(_SENDER_INBOX) or ""),
    )


def sender_name_in(metadata: Json) -> str:
    """Returns what `Task.sender_name` returns for a task that was opened with this metadata."""
    verified, user = metadata.get(_VERIFIED) is True, _text(metadata.get(_USER))
    return sender_name(sender_in(metadata).sender_id, verified=verified, user=user)


def claimed_waiting_task(metadata: Json) -> object:
    """Returns the id of the sender's waiting task as the metadata of a message claims it; not checked."""
    return metadata.get(_SENDER_TASK)


def opening_metadata(
    claims: Json,
    sender: Sender,
    *,
    verified: bool,
    user: str = "",
    reply_to: ReplyTo | None = None,
    waiting: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns the metadata of a new task: the sender's own keys, and what Synapse knows of the sender.

    `user` is the caller's name at a gateway; `waiting` are the inboxes that wait behind a sender that waits.
    """
    metadata = _own_keys(claims)
    metadata[_SENDER] = _sender_fields(sender)
    metadata[_VERIFIED] = verified
    if user:
        metadata[_USER] = user
    if reply_to is not None:
        metadata[_RESPONSE_EXPECTED] = True
    if sender.inbox and (reply_to is not None or sender.machine):
        metadata[_SENDER_INBOX] = sender.inbox
    if reply_to is not None:
        if reply_to.task_id:
            metadata[_SENDER_TASK] = reply_to.task_id
        if waiting:
            metadata[_WAITING] = list(waiting)
    return metadata


def waiting_behind_sender(task: Task) -> tuple[str, ...]:
    """Returns the inboxes that wait behind the sender of a task, as its machine's link said; see SendMessage."""
    waiting = task.metadata.get(_WAITING)
    return (
        tuple(one for one in cast("list[object]", waiting) if isinstance(one, str)) if isinstance(waiting, list) else ()
    )


def asking(asked_in: str) -> Json:
    """Returns the metadata of a task that waits for an answer which the agent asked for in the turn of `asked_in`."""
    return {_ASKED_IN: asked_in}


def asking_person() -> Json:
    """Returns the metadata of a task that is a question to a person."""
    return {_ASKS_PERSON: True}


def unverified(claims: Json) -> dict[str, Any]:
    """Returns the metadata of a new task whose sender is only claimed, as no host verifies it."""
    return {**_own_keys(claims), _VERIFIED: False}


def names_sender(metadata: Json) -> bool:
    """Decides whether a host, a store or an outbox has opened the task, and so has noted who its sender is.

    A task that a gateway only expects has nothing but the metadata of the message that was sent.
    """
    return _VERIFIED in metadata


def sent_by(user: str) -> Json:
    """Returns the filter for tasks of one caller of a gateway."""
    return {_USER: user}


def asked_for(waiting: Task) -> Json:
    """Returns the filter for tasks whose reply completes the task `waiting`."""
    return {_SENDER_TASK: waiting.id}


def reply_noted(task: Task, at: datetime, how: str) -> MetadataChanged:
    """Returns the event that records how the sender was answered; see `Task.replied`."""
    return MetadataChanged(task_id=task.id, at=at, metadata={_REPLIED: how})


def waiter_noted(task: Task, at: datetime, *, left: bool) -> MetadataChanged:
    """Returns the event that records that the process which waits for the task has left, or has come back."""
    return MetadataChanged(task_id=task.id, at=at, metadata={_WAITER_LEFT: True if left else None})


def waiter_released(task: Task, at: datetime) -> MetadataChanged:
    """Returns the event that records that the waiter has left for good; of a task that has ended, with the answer."""
    left = {} if task.state.is_terminal else {_WAITER_LEFT: True}
    return MetadataChanged(task_id=task.id, at=at, metadata={**left, _WAITER_RELEASED: True})


def answer_delivered(task: Task, at: datetime, message_task: str) -> MetadataChanged:
    """Returns the event that records that `message_task` delivers the answer of `task`, as its waiter has left."""
    return MetadataChanged(task_id=task.id, at=at, metadata={_WAITER_LEFT: True, _DELIVERED_AS: message_task})


def relayed_answer_noted(waiting: Task, at: datetime, message_id: str) -> MetadataChanged:
    """Returns the event that records which message of another machine answers the task."""
    return MetadataChanged(task_id=waiting.id, at=at, metadata={_ANSWERED_WITH: message_id})


def answered_with(waiting: Task) -> str:
    """Returns the id of the message of another machine that answered the task; empty if none did."""
    return _text(waiting.metadata.get(_ANSWERED_WITH))


def ended_by_message(message_id: str) -> Json:
    """Returns the filter for tasks that a message of another machine answered; see `relayed_answer_noted`."""
    return {_ANSWERED_WITH: message_id}


def delivering(waiting: Task) -> Json:
    """Returns the metadata of the task that delivers the answer of the task `waiting`."""
    return {_DELIVERS: waiting.id}


def question_noted(task: Task, at: datetime, question: Question) -> MetadataChanged:
    """Returns the event that records the question which the agent asks."""
    asked_at = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    fields = {**question_fields(question), "asked_at": asked_at}
    return MetadataChanged(task_id=task.id, at=at, metadata={_QUESTION: fields})


def question_removed(task: Task, at: datetime) -> MetadataChanged:
    """Returns the event that removes the question."""
    return MetadataChanged(task_id=task.id, at=at, metadata={_QUESTION: None})


def answer_noted(task: Task, at: datetime, answered: Mapping[str, str]) -> MetadataChanged:
    """Returns the event that records who answered the question, and how."""
    return MetadataChanged(task_id=task.id, at=at, metadata={_ANSWERED: answered})


def answer_of(task: Task) -> tuple[str, str]:
    """Returns the question that was answered last, and who answered it (see `answer_noted`); empty before."""
    noted = _answered(task)
    return _text(noted.get("question")), _text(noted.get("by"))


def who_answered(task: Task, question_id: str) -> str:
    """Returns who answered this question of the task; empty if it is not the one that was answered last."""
    noted = _answered(task)
    return _text(noted.get("by")) if noted.get("id") == question_id else ""


def is_about_question(event: MetadataChanged) -> bool:
    """Decides whether the event records or removes a question."""
    return _QUESTION in event.metadata


def noted_question(event: MetadataChanged) -> Question | None:
    """Returns the question that the event records; None if it records none."""
    return question_from(event.metadata.get(_QUESTION))


def noted_answer(event: MetadataChanged) -> Mapping[str, str]:
    """Returns what the event records about the answer to a question (see `answer_noted`); empty if it is about none."""
    noted = event.metadata.get(_ANSWERED)
    fields = cast("dict[str, Any]", noted) if isinstance(noted, dict) else {}
    return {key: value for key, value in fields.items() if isinstance(value, str)}


def recorded_question(task: Task) -> dict[str, Any]:
    """Returns the open question of `task` as it was recorded, with the time when it was asked."""
    return dict(task.metadata[_QUESTION])


def _answered(task: Task) -> dict[str, Any]:
    noted = task.metadata.get(_ANSWERED)
    return cast("dict[str, Any]", noted) if isinstance(noted, dict) else {}


def _own_keys(claims: Json) -> dict[str, Any]:
    return {key: value for key, value in claims.items() if key not in _DROPPED_KEYS}


def _sender_fields(sender: Sender) -> dict[str, str]:
    """Returns exactly the three fields of the contract."""
    return {
        "sender_id": sender.sender_id,
        "sender_type": sender.sender_type,
        "sender_endpoint": sender.sender_endpoint,
    }


_A_PERSON_FIELDS: Final = _sender_fields(A_PERSON)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
