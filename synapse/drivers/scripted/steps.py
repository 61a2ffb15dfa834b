"""What a rule can do, step by step. A script's richer words (`stream`, `chunks`, `state`) are made of these.

How a table of a script becomes steps: one verb each (`say`, `answer`, `artifact`, …) and the verb's options.

The verb `artifact`: a text, a file by its bytes or its address, data, whole or in chunks.

How a table of a script becomes a question for a person:

    { question = "Run the tests?", detail = "pytest -q", options = ["allow: Yes", "deny: No"] }

What stands before the colon of an option says what it amounts to (`allow`, `allow_always`, `deny`); without it, none of
these. Options are numbered from 1.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never, cast

from synapse.core.errors import InvalidScript
from synapse.core.message import Artifact, DataPart, FilePart, Part, TextPart
from synapse.core.question import Option, OptionEffect, Question, QuestionKind
from synapse.core.tables import ScriptTable


@dataclass(frozen=True, slots=True)
class Say:
    """A word on how it goes."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end: done. Without a text the task has only the artifacts that it was handed."""

    text: str = ""
    direct: bool = False
    """A plain message instead of a task, for callers whose protocol has that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hand:
    """An artifact, or a chunk of one."""

    artifact: Artifact
    append: bool = False
    last: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The end of this turn. What stands behind it is played when the follow-up comes."""

    text: str
    authorization: bool = False


@dataclass(frozen=True, slots=True)
class AskPerson:
    """A question in the middle of the turn, which goes on when it is answered."""

    question: Question


@dataclass(frozen=True, slots=True)
class Reject:
    """The end: the agent will not do it."""

    note: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The end: the agent could not do it."""

    reason: str
    note: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing happens for so many seconds, unless somebody interrupts."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Exit:
    """The agent is gone, in the middle of a turn."""

    status: int


Step = Say | Answer | Hand | Ask | AskPerson | Reject | Fail | Wait | Exit


def ends_the_task(step: Step) -> bool:
    """True when nothing can be played after this step, not even on a follow-up."""
    match step:
        case Answer() | Reject() | Fail() | Exit():
            return True
        case Say() | Hand() | Ask() | AskPerson() | Wait():
            return False
        case _:
            assert_never(step)


def spaced(steps: Sequence[Step], fields: ScriptTable) -> Iterator[Step]:
    """The steps, with a pause of `every` seconds between them."""
    every = fields.seconds("every", 0)
    for index, step in enumerate(steps):
        if index and every:
            yield Wait(every)
        yield step


_CONTENTS: Final = ("text", "bytes", "base64", "url", "data", "chunks")
ARTIFACT_OPTIONS: Final = (*_CONTENTS, "id", "description", "file", "media_type", "append", "last", "every")


def parse_artifact(fields: ScriptTable) -> Iterable[Step]:
    """Return the steps that hand over one artifact.

    Raises InvalidScript.
    """
    contents = [key for key in _CONTENTS if key in fields]
    if len(contents) != 1:
        raise InvalidScript(f"{fields.where}: an artifact has exactly one of " + ", ".join(_CONTENTS))
    if contents == ["chunks"]:
        return _in_chunks(fields)
    fields.refuse("every", "it goes with `chunks`")
    append, last = fields.flag("append", default=False), fields.flag("last", default=True)
    return (Hand(artifact=_artifact(fields, _part(fields, contents[0])), append=append, last=last),)


def _in_chunks(fields: ScriptTable) -> Iterable[Step]:
    fields.refuse("append", "`chunks` sets it for each chunk")
    fields.refuse("last", "`chunks` sets it for each chunk")
    texts = fields.texts("chunks")
    end = len(texts) - 1
    return spaced(
        [
            Hand(artifact=_artifact(fields, _chunk(fields, text)), append=index > 0, last=index == end)
            for index, text in enumerate(texts)
        ],
        fields,
    )


def _artifact(fields: ScriptTable, part: Part) -> Artifact:
    name = fields.text("artifact")
    artifact_id = fields.text("id", name)
    return Artifact(artifact_id=artifact_id, name=name, description=fields.text("description", ""), parts=(part,))


def _part(fields: ScriptTable, content: str) -> Part:
    name, media_type = fields.text("file", ""), fields.text("media_type", "")
    match content:
        case "text":
            return TextPart(text=fields.text("text"), name=name, media_type=media_type)
        case "bytes":
            return FilePart(content=fields.text("bytes").encode(), name=name, media_type=media_type)
        case "base64":
            return FilePart(content=_decoded(fields), name=name, media_type=media_type)
        case "url":
            return FilePart(url=fields.text("url"), name=name, media_type=media_type)
        case _:
            return DataPart(data=_as_json(fields.raw("data"), fields), name=name, media_type=media_type)


def _chunk(fields: ScriptTable, text: str) -> Part:
    """A chunk of a file when there is a file name, else of a text."""
    name, media_type = fields.text("file", ""), fields.text("media_type", "")
    if name:
        return FilePart(content=text.encode(), name=name, media_type=media_type)
    return TextPart(text=text, media_type=media_type)


def _decoded(fields: ScriptTable) -> bytes:
    try:
        return base64.b64decode(fields.text("base64"), validate=True)
    except binascii.Error as wrong:
        raise InvalidScript(f"{fields.where}: `base64` cannot be decoded: {wrong}") from wrong


def _as_json(value: object, fields: ScriptTable) -> Any:
    """A TOML value as JSON has it; dates, infinity and not-a-number have no place there."""
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        return {key: _as_json(item, fields) for key, item in table.items()}
    if isinstance(value, list):
        return [_as_json(item, fields) for item in cast("list[object]", value)]
    if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise InvalidScript(f"{fields.where}: `data` holds {value}, which JSON does not know", hint="write it as a text")


QUESTION_OPTIONS: Final = ("kind", "detail", "options", "takes_text", "hint")
_YES_OR_NO: Final = ("allow: Yes", "deny: No")
_KINDS: Final = tuple(kind.value for kind in QuestionKind)


def parse_question(fields: ScriptTable, kind: QuestionKind = QuestionKind.PERMISSION) -> Question:
    """Return the question that a table describes; each time it is asked, it gets an id of its own.

    Raises InvalidScript.
    """
    given = fields.text("kind", kind.value)
    if given not in _KINDS:
        raise fields.wrong("kind", "one of " + ", ".join(_KINDS))
    takes_text = fields.flag("takes_text", default=False)
    labels = fields.texts("options") if "options" in fields else () if takes_text else _YES_OR_NO
    return Question(
        id="",
        kind=QuestionKind(given),
        title=fields.text("question"),
        detail=fields.text("detail", ""),
        options=tuple(_option(number, label) for number, label in enumerate(labels, 1)),
        takes_text=takes_text,
        source="signal",
        hint=fields.text("hint", ""),
    )


def _option(number: int, given: str) -> Option:
    word, colon, label = given.partition(": ")
    if colon and word in frozenset(OptionEffect):
        return Option(key=str(number), label=label, leaning=OptionEffect(word))
    return Option(key=str(number), label=given)


_SCRIPTED: Final = "scripted"
"""Why a task failed, when the script gives no better word."""


def parse_steps(given: object, where: str) -> tuple[Step, ...]:
    """Return the steps that a list of tables describes.

    Raises InvalidScript, also for a step that could never be played.
    """
    if not isinstance(given, list) or not given:
        raise InvalidScript(f"{where}: `steps` must be a list of at least one step")
    steps: list[Step] = []
    for number, table in enumerate(cast("list[object]", given), 1):
        fields = ScriptTable(table, f"{where}, step {number}")
        if steps and ends_the_task(steps[-1]):
            raise InvalidScript(f"{fields.where} is never played: the step before it ends the task")
        steps.extend(_parse_step(fields))
    return tuple(steps)


def _parse_step(fields: ScriptTable) -> Iterable[Step]:
    verbs = [verb for verb in _VERBS if verb in fields]
    if len(verbs) != 1:
        found = " and ".join(f"`{verb}`" for verb in verbs) or "none"
        raise InvalidScript(f"{fields.where} must have one verb; it has {found}", hint=fields.meant(_VERBS))
    options, parse = _VERBS[verbs[0]]
    fields.refuse_unknown((verbs[0], *options))
    return parse(fields)


def _say(fields: ScriptTable) -> Iterable[Step]:
    return (Say(fields.text("say")),)


def _stream(fields: ScriptTable) -> Iterable[Step]:
    return spaced([Say(text) for text in fields.texts("stream")], fields)


def _answer(fields: ScriptTable) -> Iterable[Step]:
    return (Answer(text=fields.text("answer"), direct=fields.flag("direct", default=False)),)


def _ask(fields: ScriptTable) -> Iterable[Step]:
    return (Ask(text=fields.text("ask")),)


def _ask_authorization(fields: ScriptTable) -> Iterable[Step]:
    return (Ask(text=fields.text("ask_authorization"), authorization=True),)


def _question(fields: ScriptTable) -> Iterable[Step]:
    return (AskPerson(parse_question(fields)),)


def _reject(fields: ScriptTable) -> Iterable[Step]:
    return (Reject(fields.text("reject")),)


def _fail(fields: ScriptTable) -> Iterable[Step]:
    return (Fail(fields.text("reason", _SCRIPTED), fields.text("fail")),)


def _wait(fields: ScriptTable) -> Iterable[Step]:
    return (Wait(fields.seconds("wait")),)


def _exit(fields: ScriptTable) -> Iterable[Step]:
    return (Exit(fields.status("exit")),)


def _state(fields: ScriptTable) -> Iterable[Step]:
    """A state by its name, for scripts that think in states; the same steps as by their verbs."""
    state = fields.text("state")
    if state not in _STATES:
        raise fields.wrong("state", "one of " + ", ".join(_STATES))
    unsaid, step = _STATES[state]
    return (step(fields.text("note", unsaid)),)


_STATES: Final[Mapping[str, tuple[str, Callable[[str], Step]]]] = {
    "working": ("", Say),
    "input_required": ("Input is required.", lambda note: Ask(text=note)),
    "auth_required": ("Authorization is required.", lambda note: Ask(text=note, authorization=True)),
    "completed": ("", lambda note: Answer(text=note)),
    "failed": ("", lambda note: Fail(_SCRIPTED, note)),
    "rejected": ("", Reject),
}
"""Each state, what is said when the script says nothing, and the step that leads there."""

_VERBS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[ScriptTable], Iterable[Step]]]]] = {
    "say": ((), _say),
    "stream": (("every",), _stream),
    "answer": (("direct",), _answer),
    "artifact": (ARTIFACT_OPTIONS, parse_artifact),
    "ask": ((), _ask),
    "ask_authorization": ((), _ask_authorization),
    "question": (QUESTION_OPTIONS, _question),
    "reject": ((), _reject),
    "fail": (("reason",), _fail),
    "wait": ((), _wait),
    "state": (("note",), _state),
    "exit": ((), _exit),
}
"""Each verb, its options, and what it becomes."""
