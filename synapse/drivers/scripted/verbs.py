"""How a table of a script becomes steps: one verb each (`say`, `answer`, `artifact`, …) and the verb's options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, cast

from synapse.core.errors import InvalidScript
from synapse.drivers.scripted.artifacts import ARTIFACT_OPTIONS, parse_artifact
from synapse.drivers.scripted.fields import Fields, spaced
from synapse.drivers.scripted.questions import QUESTION_OPTIONS, parse_question
from synapse.drivers.scripted.steps import Answer, Ask, AskPerson, Exit, Fail, Reject, Say, Step, Wait, ends_the_task

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
        fields = Fields(table, f"{where}, step {number}")
        if steps and ends_the_task(steps[-1]):
            raise InvalidScript(f"{fields.where} is never played: the step before it ends the task")
        steps.extend(_parse_step(fields))
    return tuple(steps)


def _parse_step(fields: Fields) -> Iterable[Step]:
    verbs = [verb for verb in _VERBS if verb in fields]
    if len(verbs) != 1:
        found = " and ".join(f"`{verb}`" for verb in verbs) or "none"
        raise InvalidScript(f"{fields.where} must have one verb; it has {found}", hint=fields.meant(_VERBS))
    options, parse = _VERBS[verbs[0]]
    fields.refuse_unknown((verbs[0], *options))
    return parse(fields)


def _say(fields: Fields) -> Iterable[Step]:
    return (Say(fields.text("say")),)


def _stream(fields: Fields) -> Iterable[Step]:
    return spaced([Say(text) for text in fields.texts("stream")], fields)


def _answer(fields: Fields) -> Iterable[Step]:
    return (Answer(text=fields.text("answer"), direct=fields.flag("direct", default=False)),)


def _ask(fields: Fields) -> Iterable[Step]:
    return (Ask(text=fields.text("ask")),)


def _ask_authorization(fields: Fields) -> Iterable[Step]:
    return (Ask(text=fields.text("ask_authorization"), authorization=True),)


def _question(fields: Fields) -> Iterable[Step]:
    return (AskPerson(parse_question(fields)),)


def _reject(fields: Fields) -> Iterable[Step]:
    return (Reject(fields.text("reject")),)


def _fail(fields: Fields) -> Iterable[Step]:
    return (Fail(fields.text("reason", _SCRIPTED), fields.text("fail")),)


def _wait(fields: Fields) -> Iterable[Step]:
    return (Wait(fields.seconds("wait")),)


def _exit(fields: Fields) -> Iterable[Step]:
    return (Exit(fields.status("exit")),)


def _state(fields: Fields) -> Iterable[Step]:
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

_VERBS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[Fields], Iterable[Step]]]]] = {
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
