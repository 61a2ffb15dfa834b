"""The timeline of a task: its events as its host tells them, one line each, with evidence. Without Textual.

21:02:11  opened         claude: review src/app.py
21:02:11  queued
21:02:12  typed          screen: the prompt was empty
·  4m
21:06:15  submitted      transcript: the message is in it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

from synapse.client.events import EventStream, open_stream
from synapse.client.hosts import address_of, not_responding, refusal_of
from synapse.client.http import Answer, NoAnswer
from synapse.client.times import lasting
from synapse.client.views import message_of, sender_of
from synapse.core.agent import AgentEntry
from synapse.core.json_text import decode_object, object_in, objects_in
from synapse.top.detail import Line
from synapse.top.lines import Cell, Glyphs

GAP_SECONDS: Final = 60
WORD_COLUMNS: Final = 14
_FROM_THE_BEGINNING: Final = "0"
_OPEN_SECONDS: Final = 8.0
_QUIET_SECONDS: Final = 3600.0
_ERROR_EVENT: Final = "error"

Event = dict[str, Any]


class TaskEvents:
    """Reads the events of one task from its host, from the first on, until the task ends or `stop` is called."""

    def __init__(self, entry: AgentEntry, task_id: str, monotonic: Callable[[], float]) -> None:
        self._entry = entry
        self._task_id = task_id
        self._monotonic = monotonic
        self._stream: EventStream | None = None
        self._is_stopped = False

    def read(self) -> Iterator[Event]:
        """Yields each event as the host's JSON: `event` and `task`. Blocks; ends quietly after `stop`.

        Raises:
            AgentNotResponding: the host does not answer, or its stream broke.
            SynapseError: the host refuses.
        """
        opened = self._open()
        self._stream = opened
        try:
            while not self._is_stopped:
                try:
                    event = opened.next(self._monotonic() + _QUIET_SECONDS)
                except TimeoutError:
                    continue  # nothing has happened to the task; a broken connection is another error
                if event is None:
                    return
                if event.name == _ERROR_EVENT:
                    raise not_responding(self._entry)
                yield decode_object(event.data.encode())
        except NoAnswer as silence:
            if not self._is_stopped:
                raise not_responding(self._entry, silence) from silence
        finally:
            opened.close()

    def stop(self) -> None:
        """Ends `read` in another thread."""
        self._is_stopped = True
        if self._stream is not None:
            self._stream.interrupt()

    def _open(self) -> EventStream:
        try:
            opened = open_stream(
                address_of(self._entry),
                f"/tasks/{self._task_id}/subscribe",
                after=_FROM_THE_BEGINNING,
                deadline=self._monotonic() + _OPEN_SECONDS,
                monotonic=self._monotonic,
            )
        except (NoAnswer, TimeoutError) as error:
            raise not_responding(self._entry, error if isinstance(error, NoAnswer) else None) from error
        if isinstance(opened, Answer):
            raise refusal_of(opened)
        return opened


class Timeline:
    """Puts events into lines; text that grows is one line, and long silence is drawn as a gap."""

    def __init__(self, glyphs: Glyphs) -> None:
        self.lines: list[Line] = []
        self._glyphs = glyphs
        self._last_at: datetime | None = None
        self._is_growing = False

    def add(self, update: Event) -> None:
        """Adds the line of an event, if people need to see it."""
        event, task = object_in(update, "event"), object_in(update, "task")
        described = _describe(event, task)
        if described is None:
            return
        word, text = described
        at = _instant(event.get("at"))
        is_growing = word == "says"
        if is_growing and self._is_growing:
            self.lines.pop()
        elif self._last_at and at and (at - self._last_at).total_seconds() >= GAP_SECONDS:
            quiet = lasting(self._last_at, at)
            self.lines.append([Cell(f"{self._glyphs.dot}  {quiet} without an event", "label")])
        self._is_growing = is_growing
        self._last_at = at or self._last_at
        time = f"{at.astimezone():%H:%M:%S}" if at else " " * 8
        self.lines.append(
            [Cell(f"{time}  ", "label"), Cell(f"{word:{WORD_COLUMNS}} ", "name"), Cell(self._glyphs.line(text))]
        )


def _describe(event: Event, task: Event) -> tuple[str, str] | None:
    """Returns a word and a text for an event; None for those that people need not see."""
    match str(event.get("type", "")):
        case "task_opened":
            return "opened", f"{sender_of(task)}: {message_of(event)}"
        case "message_added":
            return "message", f"{object_in(event, 'message').get('role', '')}: {message_of(event)}"
        case "artifact_added":
            is_whole = event.get("append") is not True and event.get("last_chunk") is not False
            return ("answer" if is_whole else "says"), _text_of(object_in(event, "artifact"))
        case "receipt_changed":
            evidence = ": ".join(str(event[key]) for key in ("source", "evidence") if event.get(key))
            return _words(event.get("step")), evidence
        case _:
            return _describe_state(event)


def _describe_state(event: Event) -> tuple[str, str] | None:
    match str(event.get("type", "")):
        case "state_changed":
            return _words(event.get("status")), str(event.get("note") or event.get("reason") or "")
        case "attention_changed" if event.get("attention"):
            return "needs a person", str(event["attention"])
        case "metadata_changed":
            question = object_in(object_in(event, "metadata"), "question")
            return ("asks", str(question.get("title", ""))) if question else None
        case "task_hidden":
            return "deleted", ""
        case _:
            return None


def _words(name: object) -> str:
    return str(name or "").replace("_", " ")


def _text_of(artifact: Event) -> str:
    texts = [str(part.get("text", "")) for part in objects_in(artifact, "parts") if part.get("type") == "text"]
    return "".join(texts) or str(artifact.get("name") or "")


def _instant(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
