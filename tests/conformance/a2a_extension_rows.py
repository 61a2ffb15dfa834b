"""Clauses of A2A about extensions, checked with the agent of docs/examples/extensions.toml, which requires one."""

from __future__ import annotations

from typing import Any, Final

from tests.conformance.a2a_row import BOTH, EXTENDED, SPEC, refusal, row
from tests.conformance.a2a_speakers import Rest03, Speaker
from tests.conformance.a2a_words import Message

PLAN: Final = "https://example.com/ext/plan/v1"
PACE: Final = "https://example.com/ext/pace/v1"
OTHER: Final = "https://example.com/ext/other/v1"
HEADERS: Final = {"1.0": "A2A-Extensions", "0.3": "X-A2A-Extensions"}


@row("extension-card", BOTH, f"{SPEC} §4.6", "cards declare the extensions of the agent", of=EXTENDED)
def _(speaker: Speaker) -> None:
    path = f"{speaker.mount}/.well-known/agent-card.json"
    card = speaker.client.request("GET", path, headers={"A2A-Version": speaker.version}).json
    shown: list[Any] = [card, speaker.extended_card()] if speaker.mount else [card]

    for one in shown:
        capabilities: dict[str, Any] = one["capabilities"]
        assert capabilities["extensions"] == [
            {"uri": PLAN, "description": "Answers follow a plan", "required": True},
            {"uri": PACE, "params": {"seconds": 2}},
        ]


@row("extension-required", BOTH, f"{SPEC} §3.3.2", "a request without a required extension is refused", of=EXTENDED)
def _(speaker: Speaker) -> None:
    # 0.3 has no error of its own for it.
    word = "ExtensionRequired" if speaker.version == "1.0" else "InvalidParams"
    if isinstance(speaker, Rest03):
        speaker.names_version = True

    assert refusal(lambda: speaker.send(Message())) == word
    assert refusal(lambda: speaker.events(Message())) == word
    assert refusal(lambda: speaker.get("no-such-task")) == word
    speaker.naming = {HEADERS[speaker.version]: f"{PACE}, {PLAN}/more"}
    assert refusal(lambda: speaker.send(Message())) == word
    assert HEADERS[speaker.version].lower() not in speaker.heard


@row("extension-named", BOTH, f"{SPEC} §4.6", "an answer names the extensions that it was made with", of=EXTENDED)
def _(speaker: Speaker) -> None:
    header = HEADERS[speaker.version]

    speaker.naming = {header: PLAN}
    assert speaker.task(Message(text="hi")).parts == [{"text": "you said: hi"}]
    assert speaker.heard[header.lower()] == PLAN
    speaker.naming = {header: f"{OTHER},{PACE} , {PLAN}"}
    assert speaker.task(Message()).state == "completed"
    assert speaker.heard[header.lower()] == f"{PLAN}, {PACE}"


@row("extension-stream", BOTH, f"{SPEC} §4.6", "a stream names its extensions before its first event", of=EXTENDED)
def _(speaker: Speaker) -> None:
    header = HEADERS[speaker.version]
    speaker.naming = {header: PLAN}

    assert speaker.events(Message())
    assert speaker.heard[header.lower()] == PLAN
