"""What other machines answer may be anything: it is read, or refused with an error that a caller expects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from synapse.client import fleet_log
from synapse.core.errors import SynapseError
from synapse.dialects.task_json import task_object
from synapse.fleet.relay_io import OutboxRow, OutboxState
from synapse.fleet.wire import NO_INCARNATION, MessageKind
from synapse.link.asking import events_in, task_of_text
from synapse.link.deliveries import refusal_of
from synapse.store.codec import encode_events, encode_task
from synapse.tasks.journal import rebuild
from tests.fakes.facts import numbered, opened

EVENT = opened(numbered(1))
TASK = encode_task(rebuild(None, [EVENT]))
EVENTS = encode_events((EVENT,))
ODD: tuple[Any, ...] = (
    None,
    -1,
    2**70,
    1.5,
    1e300,
    "",
    "x",
    [],
    {},
    [1],
    {"a": 1},
    True,
    [[]],
    "9999-12-31T23:59:59+00:00",
    10**17,
)


def damaged(text: str) -> Iterator[str]:
    """Yields the document with each of its values replaced by each odd one, and texts that are no document."""
    document = json.loads(text)
    for path in places(document):
        for odd in ODD:
            other = deepcopy(document)
            inner = other
            for step in path[:-1]:
                inner = inner[step]
            inner[path[-1]] = odd
            yield json.dumps(other)
    yield from ("", "null", "[", "[" * 100_000, '"\ud800"', text[:-1])


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of every value in a document, without that of the document itself."""
    steps: list[Any] = list(document if hasattr(document, "keys") else range(len(document)))
    for step in steps:
        value: Any = document[step]
        yield (*path, step)
        if type(value) in (dict, list):
            yield from places(value, (*path, step))


def read_task(text: str) -> None:
    task_object(task_of_text(text))


def read_events(text: str) -> None:
    for event in events_in("t", text):
        rebuild(None, [event])


def read_task_in_a_command(text: str) -> None:
    task_object(fleet_log.task_of_answer(text))


def read_events_in_a_command(text: str) -> None:
    for event in fleet_log.events_of_answer("t", text):
        fleet_log.rebuilt(None, event)


@pytest.mark.parametrize(
    ("whole", "read"),
    [
        (TASK, read_task),
        (EVENTS, read_events),
        (TASK, read_task_in_a_command),
        (EVENTS, read_events_in_a_command),
    ],
)
def test_a_bad_answer_of_one_machine_is_an_error_that_callers_expect(whole: str, read: Callable[[str], None]) -> None:
    read(whole)
    others: list[str] = []
    for text in damaged(whole):
        try:
            read(text)
        except SynapseError:
            continue
        except Exception as error:  # noqa: BLE001 - it is what the test looks for
            others.append(f"{error!r} of {text[:200]}")
    assert others == []


REFUSED = OutboxRow(
    message_id="m1",
    to="box2",
    incarnation=NO_INCARNATION,
    n=1,
    kind=MessageKind.SEND,
    target="codex",
    task_id="t",
    body=b"",
    queue=False,
    state=OutboxState.REFUSED,
    created_at=0.0,
    expires_at=1.0,
    changed_at=0.0,
    why="because",
)


@pytest.mark.parametrize("error", [b"", b"\xff", b'{"code":"\xff\xfe"}', b'{"a":' * 5000, b"[" * 100_000, b"[]"])
def test_a_refusal_that_cannot_be_read_has_its_reason(error: bytes) -> None:
    assert str(refusal_of(replace(REFUSED, error=error))) == "because"
