"""Clauses of A2A about lists of tasks."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from tests.conformance.a2a_row import HTTP, NEW, SPEC, refusal, row, unique
from tests.conformance.a2a_speakers import JsonRpc10, Rest10
from tests.conformance.a2a_words import Message


@row("list", NEW, f"{SPEC} §3.1.4", "tasks are listed, newest first, with all fields of the answer")
def _(speaker: JsonRpc10 | Rest10) -> None:
    context = unique("list")
    made = [speaker.task(Message(context_id=context)) for _ in range(3)]
    page = speaker.list(contextId=context)

    assert [task["id"] for task in page["tasks"]] == [task.id for task in reversed(made)]
    assert (page["nextPageToken"], page["pageSize"], page["totalSize"]) == ("", 50, 3)
    # As times, not as text: Protobuf's JSON drops a fraction of zero, and "07.001Z" sorts before "07Z".
    times = [datetime.fromisoformat(task["status"]["timestamp"]) for task in page["tasks"]]
    assert times == sorted(times, reverse=True)


@row("list-empty", NEW, f"{SPEC} §3.1.4", "an empty page has all fields too")
def _(speaker: JsonRpc10 | Rest10) -> None:
    assert speaker.list(contextId="nobody-has-this", pageSize=7) == {
        "tasks": [],
        "nextPageToken": "",
        "pageSize": 7,
        "totalSize": 0,
    }


@row("list-pages", NEW, f"{SPEC} §3.1.4", "pages follow each other by their tokens, without a gap or a repeat")
def _(speaker: JsonRpc10 | Rest10) -> None:
    context = unique("pages")
    made = [speaker.task(Message(context_id=context)).id for _ in range(5)]
    seen: list[str] = []
    token = ""
    for _ in range(3):
        page = speaker.list(contextId=context, pageSize=2, pageToken=token)
        seen += [task["id"] for task in page["tasks"]]
        assert page["totalSize"] == 5
        token = page["nextPageToken"]

    assert seen == made[::-1]
    assert token == ""


@row("list-filters", NEW, f"{SPEC} §3.1.4", "tasks are filtered by state and by the time of their status")
def _(speaker: JsonRpc10 | Rest10) -> None:
    context = unique("filters")
    asked = speaker.task(Message("tck-input-required", context_id=context))
    done = speaker.task(Message(context_id=context))
    waiting = speaker.list(contextId=context, status="TASK_STATE_INPUT_REQUIRED")
    since = speaker.list(contextId=context, statusTimestampAfter=done.raw["status"]["timestamp"])

    assert [task["id"] for task in waiting["tasks"]] == [asked.id]
    assert [task["id"] for task in since["tasks"]] == [done.id]


# Protobuf does not distinguish an empty list from none.
@row(
    "list-parts",
    NEW,
    f"{SPEC} §3.1.4",
    "artifacts are listed only when asked for, the history as far as asked for",
    bindings=HTTP,
)
def _(speaker: JsonRpc10 | Rest10) -> None:
    context = unique("parts")
    speaker.task(Message(context_id=context))

    (bare,) = speaker.list(contextId=context, historyLength=0)["tasks"]
    (full,) = speaker.list(contextId=context, includeArtifacts=True)["tasks"]
    assert bare.keys().isdisjoint({"artifacts", "history"})
    assert full["artifacts"]
    assert full["history"]


@row("list-refused", NEW, f"{SPEC} §3.1.4", "invalid filters are refused")
def _(speaker: JsonRpc10 | Rest10) -> None:
    mistakes: list[dict[str, Any]] = [{"pageSize": 0}, {"pageSize": 101}, {"pageToken": "mine"}]
    if speaker.binding in HTTP:
        mistakes.append({"status": "running"})  # which protobuf cannot express
    for filters in mistakes:
        assert refusal(partial(speaker.list, **filters)) == "InvalidParams"
