"""Reads a script: rules that say which steps the agent plays for which message.

    [[rule]]
    message_id = "complete-*"            # a glob over the whole id …
    text = "/(?i)\\bhello\\b/"             # … and, between slashes, a regular expression anywhere in the text
    steps = [{ say = "one moment" }, { answer = "you said: {text}" }]

    [default]                            # when no rule fits; without it such a message is rejected
    steps = [{ answer = "{text}" }]

    [startup]                            # asked before the first message is taken; most scripts have none
    question = "Do you trust this folder?"

The first rule that fits wins; a rule with both patterns fits when both do.

Rarely needed, above all tables:

    repeatable_ids       a pattern of message ids that may come again for another message; `cue_ids` in older scripts
    strict_types         `true` refuses parts of types that the agent's card does not name
    extensions           the A2A extensions that the agent declares, as `core.extension` reads them
    streaming            `false` switches the capability off, in the card and for callers
    push_notifications   likewise
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from synapse.core.errors import InvalidScript
from synapse.core.extension import Extensions, read_extensions
from synapse.core.message import Message
from synapse.core.question import Question, QuestionKind
from synapse.core.requests import lacking
from synapse.core.tables import ScriptTable
from synapse.drivers.scripted.steps import QUESTION_OPTIONS, Answer, Reject, Step, Wait, parse_question, parse_steps

_KEYS: Final = (
    "rule",
    "default",
    "startup",
    "repeatable_ids",
    "cue_ids",
    "strict_types",
    "extensions",
    "streaming",
    "push_notifications",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The steps for the messages that fit its patterns. A rule without patterns fits every message."""

    name: str
    steps: tuple[Step, ...]
    message_id: re.Pattern[str] | None = None
    text: re.Pattern[str] | None = None

    def fits(self, message: Message) -> bool:
        if self.message_id is not None and self.message_id.search(message.message_id) is None:
            return False
        return self.text is None or self.text.search(message.text) is not None


NO_RULE: Final = Rule(name="no rule", steps=(Reject("no rule of the script fits this message"),))
"""The default of a script that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The behaviour of one agent."""

    rules: tuple[Rule, ...]
    default: Rule
    startup: Question | None = None
    """The question that the agent asks a person before it is ready."""
    repeatable_ids: re.Pattern[str] | None = None
    """Message ids that do not identify a message: a second message with such an id is a new message."""
    strict_types: bool = False
    """Whether the agent takes only parts of the types that its card names."""
    extensions: Extensions = ()
    """The A2A extensions that the agent declares."""
    lacks: tuple[str, ...] = ()
    """The A2A capabilities that are switched off."""

    def rule_for(self, message: Message) -> Rule:
        """Returns the first rule that fits, or the default."""
        return next((rule for rule in self.rules if rule.fits(message)), self.default)

    def answers_directly(self, message: Message) -> bool:
        """Returns whether a new message gets a plain message and nothing else, so that followers are shown no task."""
        match self.rule_for(message).steps:
            case (*waits, Answer(direct=True)):
                return all(isinstance(step, Wait) for step in waits)
            case _:
                return False


def read_script(path: Path) -> Script:
    """Returns the script in a file.

    Raises InvalidScript, also when the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidScript(f"{path.name}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise InvalidScript(f"cannot read the script {path}: {error.strerror}") from error
    return parse_script(text, path.name)


def parse_script(text: str, source: str = "script") -> Script:
    """Returns the script that `text` describes; `source` names it in errors.

    Raises InvalidScript with the rule, the step and the key that are wrong.
    """
    try:
        table = ScriptTable(tomllib.loads(text), source)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidScript(f"{source}: not TOML: {error}") from error
    table.refuse_unknown(_KEYS)
    rules = _parse_rules(table)
    if not rules and "default" not in table:
        raise InvalidScript(f"{source}: a script has at least one [[rule]] or a [default]")
    return Script(
        rules=rules,
        default=_parse_default(table),
        startup=_parse_startup(table),
        repeatable_ids=_parse_repeatable_ids(table),
        strict_types=table.flag("strict_types"),
        extensions=(read_extensions(table.value("extensions"), source, InvalidScript) if "extensions" in table else ()),
        lacks=lacking(
            streaming=table.flag("streaming", default=True),
            push_notifications=table.flag("push_notifications", default=True),
        ),
    )


def _parse_rules(table: ScriptTable) -> tuple[Rule, ...]:
    rules = table.value("rule", [])
    if not isinstance(rules, list):
        raise InvalidScript(f"{table.where}: write rules with two brackets: [[rule]]")
    return tuple(
        _parse_rule(ScriptTable(rule, f"{table.where}: rule {number}"), f"rule {number}")
        for number, rule in enumerate(cast("list[object]", rules), 1)
    )


def _parse_rule(table: ScriptTable, place: str) -> Rule:
    name = table.text("name", place)
    if "name" in table:
        table.where = f"{table.where} ({name})"
    table.refuse_unknown(("name", "message_id", "text", "steps"))
    message_id, text = _parse_pattern(table, "message_id"), _parse_pattern(table, "text")
    if message_id is None and text is None:
        raise InvalidScript(
            f"{table.where}: a rule has a `message_id` or a `text` pattern", hint="what fits all messages is [default]"
        )
    return Rule(name=name, steps=parse_steps(table.value("steps"), table.where), message_id=message_id, text=text)


def _parse_default(table: ScriptTable) -> Rule:
    if "default" not in table:
        return NO_RULE
    default = ScriptTable(table.value("default"), f"{table.where}: default")
    default.refuse_unknown(("steps",))
    return Rule(name="default", steps=parse_steps(default.value("steps"), default.where))


def _parse_startup(table: ScriptTable) -> Question | None:
    if "startup" not in table:
        return None
    startup = ScriptTable(table.value("startup"), f"{table.where}: startup")
    startup.refuse_unknown(("question", *QUESTION_OPTIONS))
    return parse_question(startup, QuestionKind.STARTUP)


def _parse_repeatable_ids(table: ScriptTable) -> re.Pattern[str] | None:
    if "repeatable_ids" not in table:
        return _parse_pattern(table, "cue_ids")
    table.forbid("cue_ids", "it is the old name of `repeatable_ids`")
    return _parse_pattern(table, "repeatable_ids")


def _parse_pattern(table: ScriptTable, key: str) -> re.Pattern[str] | None:
    """Returns a regular expression from `/…/`, or from a glob over the whole text; None if the key is missing."""
    if key not in table:
        return None
    given = table.required_text(key)
    if len(given) < 2 or not (given.startswith("/") and given.endswith("/")):
        return re.compile(rf"\A{fnmatch.translate(given)}")
    try:
        return re.compile(given[1:-1])
    except re.error as error:
        raise InvalidScript(f"{table.where}: `{key}` is not a regular expression: {error}") from error
