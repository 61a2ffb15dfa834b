"""The steps of a rule, and how a script's tables become steps.

A step's table has one verb (`say`, `answer`, `artifact`, …) and the verb's options. Some verbs (`stream`, `state`, and
`artifact` with `chunks`) become several steps or another verb's step. A question for a person is written so:

    { question = "Run the tests?", detail = "pytest -q", options = ["allow: Yes", "deny: No"] }

The word before the colon of an option is its effect (`allow`, `allow_always`, `deny`); an option without one has none
of these effects. Options are numbered from 1.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, assert_never, cast

from synapse.core.errors import InvalidScript
from synapse.core.message import Artifact, DataPart, FilePart, Part, TextPart
from synapse.core.question import Option, OptionEffect, Question, QuestionKind
from synapse.core.tables import ScriptTable

QUESTION_OPTIONS: Final = ("kind", "detail", "options", "takes_text", "hint")
_QUESTION_KINDS: Final = tuple(kind.value for kind in QuestionKind)
_YES_OR_NO: Final = ("allow: Yes", "deny: No")
_ARTIFACT_CONTENTS: Final = ("text", "bytes", "base64", "url", "data", "chunks")
_ARTIFACT_OPTIONS: Final = (
    *_ARTIFACT_CONTENTS,
    "id",
    "description",
    "file",
    "media_type",
    "append",
    "last",
    "every",
)
_SCRIPTED: Final = "scripted"
"""The reason of a failure, when the script gives none."""


@dataclass(frozen=True, slots=True)
class Say:
    """Reports progress."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Completes the task. Without a text the result is only the artifacts."""

    text: str = ""
    direct: bool = False
    """A plain message instead of a task, for callers whose protocol has that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Produce:
    """Produces an artifact, or a chunk of one."""

    artifact: Artifact
    append: bool = False
    last: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Asks the caller and ends the turn. The steps after it are played when the follow-up comes."""

    text: str
    authorization: bool = False


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Asks a person in the middle of the turn, which goes on when the question is answered."""

    question: Question


@dataclass(frozen=True, slots=True)
class Reject:
    """Rejects the task: the agent will not do it."""

    note: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Fails the task: the agent could not do it."""

    reason: str
    note: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Pauses the turn, unless it is interrupted."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Exit:
    """Ends the agent in the middle of a turn."""

    status: int


Step = Say | Answer | Produce | Ask | AskPerson | Reject | Fail | Wait | Exit


def parse_steps(given: object, where: str) -> tuple[Step, ...]:
    """Returns the steps that a list of tables describes.

    Raises InvalidScript, also for a step that could never be played.
    """
    if not isinstance(given, list) or not given:
        raise InvalidScript(f"{where}: `steps` must be a list of at least one step")
    steps: list[Step] = []
    for number, value in enumerate(cast("list[object]", given), 1):
        table = ScriptTable(value, f"{where}, step {number}")
        if steps and _ends_task(steps[-1]):
            raise InvalidScript(f"{table.where} is never played: the step before it ends the task")
        verbs = [verb for verb in _VERBS if verb in table]
        if len(verbs) != 1:
            found = " and ".join(f"`{verb}`" for verb in verbs) or "none"
            raise InvalidScript(f"{table.where} must have one verb; it has {found}", hint=table.suggest(_VERBS))
        options, parse = _VERBS[verbs[0]]
        table.refuse_unknown((verbs[0], *options))
        steps.extend(parse(table))
    return tuple(steps)


def parse_question(table: ScriptTable, kind: QuestionKind = QuestionKind.PERMISSION) -> Question:
    """Returns the question that a table describes, without an id: it gets a new one each time it is asked.

    Raises InvalidScript.
    """
    given = table.text("kind", kind.value)
    if given not in _QUESTION_KINDS:
        table.refuse("kind", "must be one of " + ", ".join(_QUESTION_KINDS), given)
    takes_text = table.flag("takes_text")
    labels = table.required_texts("options") if "options" in table else () if takes_text else _YES_OR_NO
    return Question(
        id="",
        kind=QuestionKind(given),
        title=table.required_text("question"),
        detail=table.text("detail"),
        options=tuple(_parse_option(str(number), label) for number, label in enumerate(labels, 1)),
        takes_text=takes_text,
        source="signal",
        hint=table.text("hint"),
    )


def _parse_option(key: str, given: str) -> Option:
    effect, colon, label = given.partition(": ")
    if colon and effect in frozenset(OptionEffect):
        return Option(key=key, label=label, effect=OptionEffect(effect))
    return Option(key=key, label=given)


def _parse_artifact(table: ScriptTable) -> Iterable[Step]:
    contents = [key for key in _ARTIFACT_CONTENTS if key in table]
    if len(contents) != 1:
        raise InvalidScript(f"{table.where}: an artifact has exactly one of " + ", ".join(_ARTIFACT_CONTENTS))
    if contents == ["chunks"]:
        return _parse_chunks(table)
    table.forbid("every", "it goes with `chunks`")
    append, last = table.flag("append"), table.flag("last", default=True)
    return (Produce(artifact=_artifact(table, _part(table, contents[0])), append=append, last=last),)


def _parse_chunks(table: ScriptTable) -> Iterable[Step]:
    table.forbid("append", "`chunks` sets it for each chunk")
    table.forbid("last", "`chunks` sets it for each chunk")
    texts = table.required_texts("chunks")
    chunks = [
        Produce(artifact=_artifact(table, _chunk(table, text)), append=index > 0, last=index == len(texts) - 1)
        for index, text in enumerate(texts)
    ]
    return _spaced(chunks, table)


def _artifact(table: ScriptTable, part: Part) -> Artifact:
    name = table.required_text("artifact")
    artifact_id = table.text("id", name)
    return Artifact(artifact_id=artifact_id, name=name, description=table.text("description"), parts=(part,))


def _part(table: ScriptTable, content: str) -> Part:
    name, media_type = table.text("file"), table.text("media_type")
    match content:
        case "text":
            return TextPart(text=table.required_text("text"), name=name, media_type=media_type)
        case "bytes":
            return FilePart(content=table.required_text("bytes").encode(), name=name, media_type=media_type)
        case "base64":
            try:
                decoded = base64.b64decode(table.required_text("base64"), validate=True)
            except binascii.Error as error:
                raise InvalidScript(f"{table.where}: `base64` cannot be decoded: {error}") from error
            return FilePart(content=decoded, name=name, media_type=media_type)
        case "url":
            return FilePart(url=table.required_text("url"), name=name, media_type=media_type)
        case _:
            return DataPart(data=_as_json(table.value("data"), table), name=name, media_type=media_type)


def _chunk(table: ScriptTable, text: str) -> Part:
    """Returns a chunk of a file if the table names a file, else of a text."""
    name, media_type = table.text("file"), table.text("media_type")
    if name:
        return FilePart(content=text.encode(), name=name, media_type=media_type)
    return TextPart(text=text, media_type=media_type)


def _as_json(value: object, table: ScriptTable) -> Any:
    """Returns a TOML value as JSON, which has no dates, infinity or NaN."""
    if isinstance(value, dict):
        return {key: _as_json(item, table) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_as_json(item, table) for item in cast("list[object]", value)]
    if isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise InvalidScript(f"{table.where}: `data` holds {value}, which JSON does not know", hint="write it as a text")


def _parse_state(table: ScriptTable) -> Iterable[Step]:
    state = table.required_text("state")
    if state not in _STATES:
        table.refuse("state", "must be one of " + ", ".join(_STATES), state)
    default_note, step = _STATES[state]
    return (step(table.text("note", default_note)),)


def _spaced(steps: Iterable[Step], table: ScriptTable) -> Iterator[Step]:
    """Yields the steps with a pause of `every` seconds between them."""
    every = table.seconds("every", 0)
    for index, step in enumerate(steps):
        if index and every:
            yield Wait(every)
        yield step


def _ends_task(step: Step) -> bool:
    """Returns whether no step can be played after this one, not even on a follow-up."""
    match step:
        case Answer() | Reject() | Fail() | Exit():
            return True
        case Say() | Produce() | Ask() | AskPerson() | Wait():
            return False
        case _:
            assert_never(step)


_STATES: Final[Mapping[str, tuple[str, Callable[[str], Step]]]] = {
    "working": ("", Say),
    "input_required": ("Input is required.", lambda note: Ask(text=note)),
    "auth_required": ("Authorization is required.", lambda note: Ask(text=note, authorization=True)),
    "completed": ("", lambda note: Answer(text=note)),
    "failed": ("", lambda note: Fail(_SCRIPTED, note)),
    "rejected": ("", Reject),
}
"""State → the note when the script gives none, and the step that leads to the state."""

_VERBS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[ScriptTable], Iterable[Step]]]]] = {
    "say": ((), lambda table: [Say(table.required_text("say"))]),
    "stream": (("every",), lambda table: _spaced([Say(text) for text in table.required_texts("stream")], table)),
    "answer": (
        ("direct",),
        lambda table: [Answer(text=table.required_text("answer"), direct=table.flag("direct"))],
    ),
    "artifact": (_ARTIFACT_OPTIONS, _parse_artifact),
    "ask": ((), lambda table: [Ask(text=table.required_text("ask"))]),
    "ask_authorization": (
        (),
        lambda table: [Ask(text=table.required_text("ask_authorization"), authorization=True)],
    ),
    "question": (QUESTION_OPTIONS, lambda table: [AskPerson(parse_question(table))]),
    "reject": ((), lambda table: [Reject(table.required_text("reject"))]),
    "fail": (("reason",), lambda table: [Fail(table.text("reason", _SCRIPTED), table.required_text("fail"))]),
    "wait": ((), lambda table: [Wait(table.seconds("wait"))]),
    "state": (("note",), _parse_state),
    "exit": ((), lambda table: [Exit(table.exit_status("exit"))]),
}
"""Verb → its options, and the function that makes its steps."""
