"""Writes histories of tasks for people: as text for a terminal, and as Markdown. Pure.

Whatever an agent or a sender wrote is foreign here. In a text its lines are indented, and lines that begin in the first
column are ours; in Markdown it stands in code fences that are longer than any fence inside. So no message can pass for
a line of the history.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, assert_never

from synapse.client.attention import resolving_command
from synapse.client.history import Asked, Delivered, Ended, Entry, InDoubt, Said, TaskHistory
from synapse.client.lines import cut, plain, width
from synapse.client.times import ago, lasting
from synapse.core.message import DataPart, FilePart, Part, TextPart
from synapse.core.task import Receipt, ReceiptStep, TaskState
from synapse.core.text import sanitise
from synapse.dialects.proto_json import instant

_INDENT: Final = "  "
_WIDEST_RULE: Final = 100
_NARROWEST: Final = 20
_CLOSING: Final = frozenset("、。，．！？：；）」』】〉》〕］｝ー々")  # noqa: RUF001 - they are meant
"""Characters that do not begin a line in Chinese and Japanese."""
_NOTICEABLE_SECONDS: Final = 0.1
_JOURNAL: Final = "journal"
_ON_THE_WAY: Final = (ReceiptStep.TYPED, ReceiptStep.TURN_STARTED)
_STEP_WORDS: Final = {ReceiptStep.TURN_STARTED: "at work"}
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "m"))
_SIZES: Final = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))


def as_text(histories: Iterable[TaskHistory], *, columns: int, now: datetime) -> str:
    """Returns the histories for a terminal that is so many columns wide."""
    blocks = ("\n".join(_task_lines(history, columns, now)) for history in histories)
    return "\n\n".join(blocks)


def as_markdown(histories: Sequence[TaskHistory], *, title: str, now: datetime) -> str:
    """Returns the histories as a Markdown document; times are in UTC."""
    count = f"{len(histories)} task{'' if len(histories) == 1 else 's'}"
    lines = [f"# {_code(title)}", "", f"{count}, oldest first; exported {instant(now)}."]
    for history in histories:
        lines += ["", *_markdown_task(history)]
    return "\n".join(lines)


def elapsed(seconds: float) -> str:
    """Returns a duration in at most two units: `0.3s`, `12s`, `3m 5s`, `2h 4m`, `1d 3h`."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f}s".replace(".0s", "s")
    whole = int(seconds)
    for size, unit in _UNITS:
        if whole >= size:
            less, small = next(((under, name) for under, name in (*_UNITS, (1, "s")) if under < size))
            rest = whole % size // less
            return f"{whole // size}{unit} {rest}{small}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def wrapped(text: str, columns: int) -> list[str]:
    """Returns `text` in lines of at most so many columns; breaks at spaces and between wide characters if it can."""
    return [line for given in text.split("\n") for line in _wrapped_line(given, columns)]


def _wrapped_line(line: str, columns: int) -> Iterator[str]:
    """Yields the pieces of one line. It looks at each character a few times at most: a line may have a megabyte."""
    if width(line) <= columns:
        yield line
        return
    start = at = used = split = 0
    while at < len(line):
        char_width = width(line[at])
        if _may_begin_line(line, at):
            split = at
        if used + char_width <= columns or at == start:
            used += char_width
            at += 1
            continue
        if line[at] == " ":
            split = at
        # A break inside the indentation of a line would leave an empty one.
        end = split if line[start:split].strip() else at
        yield line[start:end].rstrip(" ")
        start = end
        while start < len(line) and line[start] == " ":
            start += 1
        at, used, split = start, 0, start
    if start < len(line):
        yield line[start:]


def _may_begin_line(line: str, at: int) -> bool:
    """Decides whether a line may be broken before this character: at a wide one, or after one or a space."""
    char = line[at]
    if not width(char) or char in _CLOSING:
        return False
    return width(char) == 2 or (at > 0 and (line[at - 1] == " " or width(line[at - 1]) == 2))


def _task_lines(history: TaskHistory, columns: int, now: datetime) -> Iterator[str]:
    task = history.task
    state = task.state.value.replace("_", " ")
    head = f"── {task.short_id} · {_when(task.created_at, now)} · {state} "
    yield cut(head, columns) + "─" * (min(columns, _WIDEST_RULE) - width(head))
    previous: Entry | None = None
    for entry in history.entries:
        # Lines that belong to what was said before them stand right under it.
        if previous is not None and isinstance(entry, Said | Asked):
            yield ""
        yield from _entry_lines(entry, history, columns, now)
        previous = entry
    yield from _open_lines(history, columns, now)


def _entry_lines(entry: Entry, history: TaskHistory, columns: int, now: datetime) -> Iterator[str]:
    passed = (entry.at - history.task.created_at).total_seconds()
    after = f"  +{elapsed(passed)}" if passed >= _NOTICEABLE_SECONDS else ""
    match entry:
        case Said():
            yield from _own(f"{_said_by(entry)}{after}", columns)
            yield from _part_lines(entry.parts, columns)
        case Asked():
            yield from _own(f"{plain(entry.sender)} asks a person{after}", columns)
            yield from _foreign(entry.question.text, columns)
            if entry.closed_at is not None:
                took = elapsed((entry.closed_at - entry.at).total_seconds())
                yield from _own(_answer_line(entry, took), columns)
        case InDoubt():
            took = "" if entry.settled_at is None else f" for {elapsed((entry.settled_at - entry.at).total_seconds())}"
            yield from _own(f"! in doubt{took}{after}", columns)
            yield from _foreign(entry.why, columns)
        case Delivered():
            yield from _own(f"· {_receipt_line(entry.receipts, now)}", columns)
        case Ended():
            yield from _own(f"! {_end(entry)}{after}", columns)
            if entry.note:
                yield from _foreign(entry.note, columns)
        case _:
            assert_never(entry)


def _said_by(said: Said) -> str:
    name = f": {plain(said.name)}" if said.name else ""
    so_far = " (the answer so far)" if said.is_partial else ""
    return f"{plain(said.sender)} → {plain(said.receiver)}{name}{so_far}"


def _answer_line(asked: Asked, took: str) -> str:
    if asked.by:
        return f"{plain(asked.by)} answered after {took}: {plain(asked.choice)}"
    return f"· answered in the agent's terminal, or closed, after {took}"


def _end(ended: Ended) -> str:
    reason = f" ({plain(ended.reason)})" if ended.reason and ended.reason != ended.state.value else ""
    return f"{ended.state.value}{reason}"


def _open_lines(history: TaskHistory, columns: int, now: datetime) -> Iterator[str]:
    """Yields what an unfinished task waits for, and the command for it."""
    task, short_id = history.task, history.task.short_id
    if task.state.is_terminal:
        return
    since = lasting(task.updated_at, now)
    if task.attention:
        step = resolving_command(short_id, task.receipt.step.value if task.receipt else "")
        yield from _own(f"! needs a person for {since}" + (f"  ({step})" if step else ""), columns)
    elif task.question is not None:
        yield from _own(f"! waits for an answer for {since}  (synapse answer {short_id} …)", columns)
    elif task.state.is_interrupted:
        follow_up = f'synapse send {history.agent} "…" --task {short_id}'
        yield from _own(f"! asks its sender for {since}  ({follow_up})", columns)
    else:
        state = "queued" if task.state is TaskState.SUBMITTED else "working"
        yield from _own(f"… {state} for {since}  (synapse watch --task {short_id})", columns)
        if task.note:
            yield from _foreign(task.note, columns)


def _part_lines(parts: Iterable[Part], columns: int) -> Iterator[str]:
    for part in parts:
        match part:
            case TextPart(text=text):
                yield from _foreign(text, columns)
            case DataPart(data=data):
                yield from _foreign(_data(data), columns)
            case FilePart():
                yield from _own(f"+ {_file_line(part)}", columns)
            case _:
                assert_never(part)


def _data(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _file_line(part: FilePart) -> str:
    name = plain(part.name) or "a file without a name"
    size = _size(len(part.content)) if part.content is not None else plain(part.url)
    return ", ".join(one for one in (f"file {name}", size, plain(part.media_type)) if one)


def _size(count: int) -> str:
    for unit, name in _SIZES:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} byte{'' if count == 1 else 's'}"


def _receipt_line(receipts: Sequence[Receipt], now: datetime) -> str:
    """Returns the steps of a message in one line: the first with its time, the others with the time since then."""
    first, last = receipts[0], receipts[-1]
    words = [f"{_step(first)} {_clock_time(first.at, now)}"]
    for receipt in receipts[1:]:
        # A step on the way to the next one tells people nothing, and so does the return of a message that was not
        # typed after all; `--json` has them.
        if receipt is not last and (receipt.step in _ON_THE_WAY or receipt.source == _JOURNAL):
            continue
        again = " again" if receipt.step is ReceiptStep.QUEUED else ""
        words.append(f"{_step(receipt, again)} +{elapsed((receipt.at - first.at).total_seconds())}")
    return " · ".join(words)


def _step(receipt: Receipt, again: str = "") -> str:
    word = _STEP_WORDS.get(receipt.step, receipt.step.value) + again
    return word if receipt.source in (_JOURNAL, "") else f"{word} ({plain(receipt.source)})"


def _own(line: str, columns: int) -> Iterator[str]:
    """Yields a line of ours, wrapped; what does not fit is indented deeper than foreign text."""
    first, *rest = wrapped(line, columns)
    yield first
    for more in wrapped(" ".join(rest), max(_NARROWEST, columns - 4)) if rest else ():
        yield f"    {more}"


def _foreign(text: str, columns: int) -> Iterator[str]:
    """Yields foreign text, indented and without characters that act on a terminal."""
    body = sanitise(text).expandtabs(4).strip("\n")
    for line in wrapped(body, max(_NARROWEST, columns - len(_INDENT))):
        yield f"{_INDENT}{line}".rstrip()


def _when(at: datetime, now: datetime) -> str:
    time, relative = _clock_time(at, now), ago(at, now)
    # What is long ago is said by its date, which the time has already.
    return time if relative in time else f"{time} ({relative})"


def _clock_time(at: datetime, now: datetime) -> str:
    local = at.astimezone()
    is_today = local.date() == now.astimezone().date()
    return f"{local:%H:%M:%S}" if is_today else f"{local:%Y-%m-%d %H:%M:%S}"


def _markdown_task(history: TaskHistory) -> Iterator[str]:
    task = history.task
    yield f"## Task {task.short_id}"
    yield ""
    yield f"- id: {_code(task.id)}"
    yield f"- context: {_code(task.context_id)}"
    yield f"- from {_code(history.sender)} to {_code(history.agent)}, {instant(task.created_at)}"
    yield f"- state: {task.state.value.replace('_', ' ')}"
    for entry in history.entries:
        yield ""
        yield from _markdown_entry(entry)


def _markdown_entry(entry: Entry) -> Iterator[str]:  # noqa: C901 - one case per kind of entry
    at = instant(entry.at)
    match entry:
        case Said():
            name = f": {_code(entry.name)}" if entry.name else ""
            so_far = ", the answer so far" if entry.is_partial else ""
            yield f"### {_code(entry.sender)} → {_code(entry.receiver)}{name} ({at}{so_far})"
            for part in entry.parts:
                yield ""
                yield from _markdown_part(part)
        case Asked():
            yield f"### {_code(entry.sender)} asks a person ({at})"
            yield ""
            yield from _fence(entry.question.text)
            if entry.by:
                yield ""
                yield f"{_code(entry.by)} answered: {_code(entry.choice)}"
            elif entry.closed_at is not None:
                yield ""
                yield "Answered in the agent's terminal, or closed."
        case InDoubt():
            yield f"In doubt ({at}): {_code(entry.why)}"
        case Delivered():
            steps = (f"{one.step.value} {instant(one.at)} ({_code(one.source)})" for one in entry.receipts)
            yield f"Receipts: {', '.join(steps)}"
        case Ended():
            note = f": {_code(entry.note)}" if entry.note else ""
            yield f"**{_end(entry)}** ({at}){note}"
        case _:
            assert_never(entry)


def _markdown_part(part: Part) -> Iterator[str]:
    match part:
        case TextPart(text=text):
            yield from _fence(text)
        case DataPart(data=data):
            yield from _fence(_data(data), "json")
        case FilePart():
            yield f"- {_code(_file_line(part))}"
        case _:
            assert_never(part)


def _fence(text: str, language: str = "text") -> Iterator[str]:
    """Yields a code block; its fence is longer than every run of backticks inside, so the text cannot end it."""
    body = sanitise(text).strip("\n")
    fence = "`" * max(3, _longest_run(body) + 1)
    yield f"{fence}{language}"
    yield body
    yield fence


def _code(text: str) -> str:
    """Returns foreign text as inline code on one line, which no Markdown inside can end."""
    line = plain(text).strip()
    if not line:
        return ""
    ticks = "`" * (_longest_run(line) + 1)
    # A span that begins or ends with a backtick needs a space there; Markdown takes it away.
    return f"{ticks} {line} {ticks}" if "`" in line else f"{ticks}{line}{ticks}"


def _longest_run(text: str) -> int:
    longest = run = 0
    for char in text:
        run = run + 1 if char == "`" else 0
        longest = max(longest, run)
    return longest
