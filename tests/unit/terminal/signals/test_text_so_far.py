"""The text of a running turn, from CLIs that have a server."""

from __future__ import annotations

from typing import Any

from synapse.terminal.signals.codex_server import AppServerEvents
from synapse.terminal.signals.opencode import OpenCodeEvents
from synapse.terminal.signals.report import TextSoFar
from tests.unit.terminal.signals.recordings import recorded


def opencode(events: OpenCodeEvents, name: str, **properties: Any) -> TextSoFar | None:
    assert events.read({"type": name, "properties": {"sessionID": "s", **properties}}) is None
    return events.take_text()


def opened(events: OpenCodeEvents, part: str, kind: str = "text", message: str = "a") -> TextSoFar | None:
    fields = {"id": part, "type": kind, "text": "", "messageID": message}
    return opencode(events, "message.part.updated", part=fields)


def grown(events: OpenCodeEvents, part: str, delta: str, message: str = "a", field: str = "text") -> TextSoFar | None:
    return opencode(events, "message.part.delta", messageID=message, partID=part, field=field, delta=delta)


def conversation() -> OpenCodeEvents:
    events = OpenCodeEvents()
    opencode(events, "message.updated", info={"id": "u", "role": "user"})
    opencode(events, "message.updated", info={"id": "a", "role": "assistant", "parentID": "u"})
    return events


def test_the_text_of_opencode_grows() -> None:
    events = conversation()
    opened(events, "p1")

    assert grown(events, "p1", "The ") == TextSoFar("u", "The ")
    assert grown(events, "p1", "weather") == TextSoFar("u", "The weather")
    assert events.take_text() is None
    opened(events, "p2")
    assert grown(events, "p2", "!") == TextSoFar("u", "The weather!")


def test_thoughts_of_opencode_are_not_its_text() -> None:
    events = conversation()
    opened(events, "r1", "reasoning")
    opened(events, "p1")

    assert grown(events, "r1", "hmm") is None
    assert grown(events, "p1", "x", field="metadata") is None
    assert grown(events, "p1", "x", message="another") is None
    assert grown(events, "never-seen", "x") is None


def test_a_new_message_of_opencode_starts_a_new_text() -> None:
    events = conversation()
    opened(events, "p1")
    grown(events, "p1", "let me look")
    opencode(events, "message.updated", info={"id": "b", "role": "assistant", "parentID": "u"})
    opened(events, "p2", message="b")

    assert grown(events, "p2", "done", message="b") == TextSoFar("u", "done")


def test_recorded_turns_of_opencode_end_with_what_was_said() -> None:
    events, said = OpenCodeEvents(), ""
    ends: list[tuple[str, str]] = []
    for event in recorded("opencode", "events.jsonl"):
        report = events.read(event)
        saying = events.take_text()
        said = saying.text if saying else said
        if report is not None and report.kind == "answered":
            ends.append((report.text, said))

    assert ends
    assert all(answer == said for answer, said in ends)


def codex(events: AppServerEvents, name: str, **params: Any) -> TextSoFar | None:
    events.read({"method": name, "params": {"threadId": "t", **params}})
    return events.take_text()


def test_the_text_of_codex_grows_and_each_message_starts_a_new_one() -> None:
    events = AppServerEvents()
    codex(events, "thread/started", thread={"id": "t"})
    codex(events, "turn/started", turn={"id": "1"})

    assert codex(events, "item/agentMessage/delta", turnId="1", itemId="i", delta="The ") == TextSoFar("1", "The ")
    assert codex(events, "item/agentMessage/delta", turnId="1", itemId="i", delta="end") == TextSoFar("1", "The end")
    assert codex(events, "item/agentMessage/delta", turnId="0", itemId="i", delta="!") is None
    assert codex(events, "item/agentMessage/delta", turnId="1", itemId="j", delta="More") == TextSoFar("1", "More")
    assert codex(events, "item/agentMessage/delta", turnId="1", itemId="k", delta="") is None
