"""One row per agent for people: its state in one word, why, since when, and what needs a person.

`synapse top`, the dashboard and notices show the same rows in the same order:

    asks · in doubt · failed · done ─ needs a person        working · queued · starting · ready · away ─ does not

Pure: a row is made of the agent's registry entry, the JSON of its host's `GET /status?finished=N` and the time until
which the person has seen the agent's answers. Texts are as agents and senders wrote them: those who print them on a
terminal use `plain`, a page makes odd characters visible.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, TypedDict

from synapse.client.attention import (
    ATTACH_AFTER,
    DIALOG,
    HELD,
    IN_DOUBT,
    NOT_RESPONDING,
    UNKNOWN,
    agent_state_of,
    held_in,
    needs_of,
)
from synapse.client.lines import first_line, short_path
from synapse.client.views import (
    FINISHED,
    ended_at,
    message_of,
    note_of,
    receipt_of,
    reply_of,
    sender_of,
    short_id,
    status_of,
)
from synapse.core.address import KEY, PERSON, UNVERIFIED, short_name, split_inbox
from synapse.core.agent import EXITED, READY, STARTING, WORKING, AgentEntry
from synapse.core.errors import SynapseError
from synapse.core.json_text import object_in, objects_in

ASKS: Final = "asks"
FAILED: Final = "failed"
DONE: Final = "done"
QUEUED: Final = "queued"
AWAY: Final = "away"

MARKS: Final = {
    ASKS: "?",
    IN_DOUBT: "!",
    FAILED: "×",  # noqa: RUF001 - a mark, not a letter
    DONE: "●",
    WORKING: "◐",
    QUEUED: "…",
    STARTING: "◌",
    READY: "○",
    AWAY: "–",  # noqa: RUF001 - a mark, not a letter
}
"""The mark of each state, which people see beside its word."""
ORDER: Final = tuple(MARKS)
"""The states in the order of rows: those that need a person come first."""
NEEDS_PERSON: Final = (ASKS, IN_DOUBT, FAILED, DONE)
WORDS: Final = {state: state.replace("_", " ") for state in MARKS}
LONGEST_TEXT: Final = 300


class ShownOption(TypedDict):
    """One answer that a question offers; `effect` is `allow`, `allow_always`, `deny` or `other`."""

    key: str
    label: str
    effect: str


# Written as calls, because `from` is no name of a field in a class.
Need = TypedDict(
    "Need",
    {
        "id": str,
        "kind": str,
        "agent": str,
        "agent_id": str,
        "name": str,
        "task_id": str | None,
        "title": str,
        "detail": str,
        "options": list[ShownOption],
        "takes_text": bool,
        "hint": str,
        "asked_at": str,
        "from": str,
        "folder": str,
        "source": str,
        "next": str,
        "question_id": str,
        "can": list[str],
    },
)
"""One thing that needs a person. `id` stays the same as long as it does, and no need of another agent has it; `can`
names the actions that settle it."""

RowTask = TypedDict("RowTask", {"id": str, "from": str, "text": str, "receipt": str})
"""The task that the agent works on."""


class OwedAnswer(TypedDict):
    """An answer that the agent has promised: the turn of the task is over, and it waits for another's answer."""

    task_id: str
    to: str
    text: str


class Row(TypedDict):
    """One agent. `state` is for people; `agent_state` is the host's own word, and `source` is what says so."""

    id: str
    agent_id: str
    name: str
    agent_type: str
    role: str
    folder: str
    machine: str
    state: str
    why: str
    since: str
    source: str
    agent_state: str
    queue: int
    unread: int
    has_terminal: bool
    started_at: str
    """When this agent started: an earlier agent may have had the same id, which contains a port."""
    task: RowTask | None
    owes: list[OwedAnswer]
    needs: list[Need]
    store_fault: str


def row_of(
    entry: AgentEntry, status: dict[str, Any] | None, seen: datetime | None, error: SynapseError | None = None
) -> Row:
    """Returns the row of an agent.

    `status` is its host's `GET /status?finished=20`, None before the first answer; `error` says why there is none now.
    A person has seen the answers until `seen`.
    """
    known = status if status is not None and error is None else {}
    agent_state = UNKNOWN if status is None and error is None else agent_state_of(known, error)
    is_away = agent_state in (EXITED, NOT_RESPONDING, UNKNOWN)
    unseen = [] if is_away else _unseen(known, seen)
    needs = [] if is_away else [*_open_needs(entry, known), *_ended_needs(entry, known, unseen)]
    state = AWAY if is_away else _state_for_person(known, agent_state, needs)
    task = object_in(known, "current_task")
    row: Row = {
        "id": _id_of(entry),
        "agent_id": entry.agent_id,
        "name": short_name(entry),
        "agent_type": entry.agent_type,
        "role": entry.role[:LONGEST_TEXT],
        "folder": short_path(entry.working_dir),
        "machine": split_inbox(entry.inbox)[1],
        "state": state,
        "why": "",
        "since": str(known.get("since") or ""),
        "source": str(known.get("source") or ""),
        "agent_state": agent_state,
        "queue": _number(known.get("queue_depth")),
        "unread": sum(1 for one in unseen if is_from_person(one)),
        "has_terminal": entry.terminal != 0,
        "started_at": entry.started_at,
        "task": _row_task(task) if task and status_of(task) not in FINISHED else None,
        "owes": [
            {"task_id": str(one.get("task_id", "")), "to": str(one.get("to", "")), "text": str(one.get("text", ""))}
            for one in objects_in(known, "owes")
        ],
        "needs": needs,
        "store_fault": str(known.get("store_fault") or ""),
    }
    cause = _cause(state, needs)
    if cause is not None:
        row["why"], row["since"] = _why_needed(cause), cause["asked_at"] or row["since"]
    elif state == AWAY:
        row["why"] = _why_away(known, error)
    else:
        row["why"] = _work(row, known)
    if state == QUEUED:
        row["since"] = str(held_in(known).get("since") or row["since"])
    return row


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Returns the rows as people see them: in the order of ORDER, in a state those that have been in it for longest."""
    # Instants of hosts have one form, so they compare as texts. A row without one comes last.
    return sorted(rows, key=lambda row: (ORDER.index(row["state"]), row["since"] or "~", row["name"]))


def is_from_person(task: dict[str, Any]) -> bool:
    """Decides whether a person, or a caller of the gateway for one, sent the task; agents read answers themselves."""
    sender = sender_of(task)
    return sender in (PERSON, UNVERIFIED + PERSON) or sender.startswith(KEY)


def _state_for_person(status: dict[str, Any], agent_state: str, needs: list[Need]) -> str:
    states = {_state_of(need) for need in needs}
    for state in NEEDS_PERSON:
        if state in states:
            return state
    if agent_state in (WORKING, STARTING):
        return agent_state
    return QUEUED if _number(status.get("queue_depth")) or held_in(status) else READY


def _state_of(need: Need) -> str:
    """Returns the state that a need puts its agent into."""
    return need["kind"] if need["kind"] in (IN_DOUBT, FAILED, DONE) else ASKS


def _cause(state: str, needs: list[Need]) -> Need | None:
    """Returns the need that the row tells: of those with its state the one that has been open for longest."""
    causes = [need for need in needs if _state_of(need) == state]
    return min(causes, key=lambda need: need["asked_at"] or "~", default=None)


def _why_needed(need: Need) -> str:
    if need["kind"] == DONE:
        return f"→ {need['from']}: {need['title']}"
    subject = first_line(need["detail"])
    if not subject or subject in need["title"] or need["kind"] == FAILED:
        return need["title"]
    if need["kind"] == IN_DOUBT:
        return f'was it taken? "{subject}"'
    return f"{need['title']}  {subject}"


def _why_away(status: dict[str, Any], error: SynapseError | None) -> str:
    if error is not None:
        return f"{error} {error.hint}".strip()
    return str(status.get("why") or "") if status else "has not answered yet"


def _work(row: Row, status: dict[str, Any]) -> str:
    """Returns what an agent does that needs nobody: its task, why messages wait, or what it owes."""
    if row["task"] is not None:
        return first_line(row["task"]["text"])
    held = held_in(status)
    if row["state"] == QUEUED:
        return str(held.get("why") or f"{row['queue']} queued")
    if row["state"] != READY:
        return str(status.get("why") or "")
    return "; ".join(f"owes {one['to']} an answer: {first_line(one['text'])}" for one in row["owes"])


def _row_task(task: dict[str, Any]) -> RowTask:
    text = message_of(task)[:LONGEST_TEXT]
    return {"id": str(task.get("id", "")), "from": sender_of(task), "text": text, "receipt": receipt_of(task)}


def _open_needs(entry: AgentEntry, status: dict[str, Any]) -> list[Need]:
    """Returns what waits for a person's decision now: what `synapse approvals` lists."""
    return [_open_need(entry, status, item) for item in needs_of(entry, status)]


def _open_need(entry: AgentEntry, status: dict[str, Any], item: dict[str, Any]) -> Need:
    """Returns the need for an object of `needs_of`, with what a person has to know before the decision."""
    question: dict[str, Any] = item["question"] or {}
    kind, task_id = str(item["kind"]), str(item["task_id"] or "")
    noted = {str(one.get("task_id", "")): one for one in objects_in(status, "attention")}.get(task_id, {})
    asked_at = str(item["asked_at"] or noted.get("since") or status.get("since") or "")
    need = _blank(entry, kind, task_id)
    need["title"], need["asked_at"], need["next"] = str(item["title"]), asked_at, str(item["next"])
    need["from"] = _sender_in(status, task_id) or str(noted.get("from") or "")
    if question:
        need["question_id"] = str(question.get("id", ""))
        # Agents number their questions, so those of two may have one id.
        need["id"] = f"{entry.agent_id}:{need['question_id']}"
        need["detail"], need["hint"] = str(question.get("detail", "")), str(question.get("hint", ""))
        need["source"], need["takes_text"] = str(question.get("source", "")), question.get("takes_text") is True
        need["options"] = [
            {"key": str(one.get("key", "")), "label": str(one.get("label", "")), "effect": str(one.get("leaning", ""))}
            for one in objects_in(question, "options")
        ]
    elif kind == DIALOG:
        need["id"], need["source"] = f"{DIALOG}:{entry.agent_id}:{asked_at}", str(status.get("source") or "")
    elif kind == IN_DOUBT:
        need["detail"] = str(noted.get("message") or "")
    else:
        reason = str(held_in(status).get("reason", ""))
        need["id"] = f"{HELD}:{task_id}" if task_id else f"{HELD}:{entry.agent_id}:{reason}"
    need["can"] = _actions(entry, status, need)
    return need


def _may_attach(entry: AgentEntry, status: dict[str, Any]) -> bool:
    return entry.terminal != 0 and not status.get(ATTACH_AFTER)


def _actions(entry: AgentEntry, status: dict[str, Any], need: Need) -> list[str]:
    """Returns what a person can do about an open need."""
    effects = {one["effect"] for one in need["options"]}
    wanted = {
        "allow": bool(effects & {"allow", "allow_always"}),
        "deny": "deny" in effects,
        "choose": bool(effects),
        "text": need["takes_text"],
        "resolve": need["kind"] == IN_DOUBT,
        "cancel": bool(need["task_id"]),
        "attach": _may_attach(entry, status),
    }
    return [action for action, is_possible in wanted.items() if is_possible]


def _ended_needs(entry: AgentEntry, status: dict[str, Any], unseen: list[dict[str, Any]]) -> list[Need]:
    """Returns what a person has not seen yet: a store that fails, the newest failure, answers to people."""
    needs: list[Need] = []
    if fault := str(status.get("store_fault") or ""):
        need = _blank(entry, FAILED, "")
        # One store serves all agents, and each of them needs a person.
        need["id"] = f"{FAILED}:{entry.agent_id}:store"
        need["title"], need["next"] = fault, f"synapse restart {short_name(entry)}"
        need["asked_at"] = str(status.get("since") or "")
        needs.append(need)
    for index, task in enumerate(unseen):
        has_failed = status_of(task) == FAILED
        if (has_failed and index == 0) or (not has_failed and is_from_person(task)):
            needs.append(_ended_need(entry, status, task, FAILED if has_failed else DONE))
    return needs


def _ended_need(entry: AgentEntry, status: dict[str, Any], task: dict[str, Any], kind: str) -> Need:
    need = _blank(entry, kind, str(task.get("id", "")))
    answer = reply_of(task)
    need["title"] = first_line(answer if kind == DONE else note_of(task)) or WORDS[kind]
    need["detail"] = answer or message_of(task)
    need["asked_at"], need["from"], need["next"] = ended_at(task), sender_of(task), f"synapse status {short_id(task)}"
    need["can"] = ["seen", "attach"] if _may_attach(entry, status) else ["seen"]
    return need


def _unseen(status: dict[str, Any], seen: datetime | None) -> list[dict[str, Any]]:
    """Returns the tasks that ended after `seen`, newest first. Who cancels a task knows how it ended."""
    ended = [task for task in objects_in(status, "finished") if status_of(task) != "canceled"]
    return [task for task in ended if seen is None or _is_after(ended_at(task), seen)]


def _is_after(instant: str, moment: datetime) -> bool:
    try:
        return datetime.fromisoformat(instant) > moment
    except ValueError:
        return False


def _sender_in(status: dict[str, Any], task_id: str) -> str:
    """Returns who sent the task that the agent works on, if it is `task_id`; else an empty string."""
    task = object_in(status, "current_task")
    return sender_of(task) if task_id and task.get("id") == task_id else ""


def _blank(entry: AgentEntry, kind: str, task_id: str) -> Need:
    return {
        "id": f"{kind}:{task_id}",
        "kind": kind,
        "agent": _id_of(entry),
        "agent_id": entry.agent_id,
        "name": short_name(entry),
        "task_id": task_id or None,
        "title": "",
        "detail": "",
        "options": [],
        "takes_text": False,
        "hint": "",
        "asked_at": "",
        "from": "",
        "folder": short_path(entry.working_dir),
        "source": "",
        "next": "",
        "question_id": "",
        "can": [],
    }


def _id_of(entry: AgentEntry) -> str:
    """Returns the agent's name at the gateway."""
    return entry.name or entry.agent_id


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
