"""However an agent's text grows or is rewritten, and wherever its readers are cut off: they end up with that text."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from synapse.core.events import ArtifactAdded, StateChanged, Update
from synapse.core.message import TextPart
from synapse.core.task import TaskState
from synapse.dialects.dialect import StreamCall, WireEvent
from tests.unit.dialects.hub.samples import CREATED, TASK_ID, a_task, an_artifact, ask, said

BEGAN = StateChanged(task_id=a_task().id, at=CREATED, state=TaskState.WORKING)
GREW = ArtifactAdded(task_id=a_task().id, at=CREATED, artifact=an_artifact(TextPart(text="x")))
ENDED = StateChanged(task_id=a_task().id, at=CREATED, state=TaskState.COMPLETED)
WORDS = st.text(alphabet="ab\n°", max_size=4)
STEPS = st.lists(st.tuples(st.booleans(), WORDS), max_size=8)
"""Each adds a text, or (seldom in life) puts another in the place of all before."""


def a_subscription(place: str) -> StreamCall:
    headers = [(b"accept", b"text/event-stream"), *([(b"last-event-id", place.encode())] if place else [])]
    call = ask("GET", "/tasks/{taskId}", headers=headers, taskId=TASK_ID)
    assert isinstance(call, StreamCall)
    return call


def updates(steps: list[tuple[bool, str]]) -> list[Update]:
    """What the feed tells of a task: that it begins, how its text grows, and that it ends."""
    told = [Update(1, BEGAN, a_task())]
    text = ""
    for rewritten, word in steps:
        text = word if rewritten else text + word
        told.append(Update(len(told) + 1, GREW, said(text)))
    return [*told, Update(len(told) + 1, ENDED, said(text, state=TaskState.COMPLETED))]


class Reader:
    """Puts a text together from the events of one stream after another."""

    def __init__(self) -> None:
        self.text = ""
        self.place = ""
        self.completed = 0

    def read(self, event: WireEvent) -> None:
        self.place = event.id
        data = json.loads(event.data)
        if event.name == "complete":
            self.completed += 1
        elif data["type"] == "replace":
            self.text = data["content"]
        else:
            assert data["content"] != ""
            self.text += data["content"]

    def follow(self, log: list[Update], patience: int) -> None:
        """Follow on from where it was, until the end or until so many events have come."""
        seen = int(self.place.split(".")[1]) if self.place else 0
        stream = a_subscription(self.place)
        for one in log:
            event = stream.encode(one) if one.seq > seen else None
            while event is not None:
                if patience == 0:
                    return
                patience -= 1
                self.read(event)
                event = event.then


@given(steps=STEPS, cuts=st.lists(st.integers(0, 3), max_size=6))
def test_a_reader_that_is_cut_off_again_and_again_has_the_whole_text_in_the_end(
    steps: list[tuple[bool, str]], cuts: list[int]
) -> None:
    log = updates(steps)
    reader = Reader()
    for cut in cuts:
        reader.follow(log, cut)
    reader.follow(log, 1000)

    assert reader.text == log[-1].task.artifacts[0].text
    assert reader.completed == 1
