"""A script: rules that say which message gets which steps.

    [[rule]]
    message_id = "complete-*"            # a glob over the whole id …
    text = "/(?i)\\bhello\\b/"             # … and, between slashes, a regular expression anywhere in the text
    steps = [{ say = "one moment" }, { answer = "you said: {text}" }]

    [default]                            # when no rule fits; without it such a message is rejected
    steps = [{ answer = "{text}" }]

    [startup]                            # asked before the first message is taken; most scripts have none
    question = "Do you trust this folder?"

Above all tables, and rarely needed: `cue_ids`, a pattern of message ids that are cues, so that the same one again is
another message; `strict_types = true`, which refuses parts of types that the agent's card does not name;
`extensions`, those of A2A that the agent declares, as `core.extension` reads them; and `streaming = false` or
`push_notifications = false`, which switch a capability off, in the card and for its callers.

The first rule that fits wins; a rule with both patterns fits when both do.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Which messages, and what is done with them. A rule without patterns fits all."""

    name: str
    steps: tuple[Step, ...]
    message_id: re.Pattern[str] | None = None
    text: re.Pattern[str] | None = None

    def fits(self, message: Message) -> bool:
        if self.message_id is not None and self.message_id.search(message.message_id) is None:
            return False
        return self.text is None or self.text.search(message.text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The behaviour of one agent."""

    rules: tuple[Rule, ...]
    default: Rule
    startup: Question | None = None
    """What it asks a person before it is ready."""
    cue_ids: re.Pattern[str] | None = None
    """Message ids that name no message: the same one again is another message."""
    strict_types: bool = False
    """Whether it takes only parts of the types that its card names."""
    extensions: Extensions = ()
    """The extensions of A2A that it declares."""
    lacks: tuple[str, ...] = ()
    """The capabilities of A2A that are switched off."""

    def rule_for(self, message: Message) -> Rule:
        """The first rule that fits, else the default."""
        for rule in self.rules:
            if rule.fits(message):
                return rule
        return self.default

    def answers_directly(self, message: Message) -> bool:
        """Whether a new message gets a plain message and nothing else: whoever follows is shown no task then."""
        match self.rule_for(message).steps:
            case (*waits, Answer(direct=True)):
                return all(isinstance(step, Wait) for step in waits)
            case _:
                return False


_SWITCHES: Final = ("streaming", "push_notifications")
NO_RULE: Final = Rule(name="no rule", steps=(Reject("no rule of the script fits this message"),))
"""The default of a script that has none."""


def read_script(path: Path) -> Script:
    """Return the script in a file.

    Raises InvalidScript, also when the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as wrong:
        raise InvalidScript(f"{path.name}: not UTF-8 text: {wrong.reason} at byte {wrong.start}") from wrong
    except OSError as wrong:
        raise InvalidScript(f"cannot read the script {path}: {wrong.strerror}") from wrong
    return parse_script(text, path.name)


def parse_script(text: str, source: str = "script") -> Script:
    """Return the script that `text` describes; `source` names it in errors.

    Raises InvalidScript with the rule, the step and the key that are wrong.
    """
    try:
        fields = ScriptTable(tomllib.loads(text), source)
    except tomllib.TOMLDecodeError as wrong:
        raise InvalidScript(f"{source}: not TOML: {wrong}") from wrong
    fields.refuse_unknown(("rule", "default", "startup", "cue_ids", "strict_types", "extensions", *_SWITCHES))
    rules = tuple(_parse_rule(table, f"{source}: rule {number}") for number, table in enumerate(_tables(fields), 1))
    if not rules and "default" not in fields:
        raise InvalidScript(f"{source}: a script has at least one [[rule]] or a [default]")
    return Script(
        rules=rules,
        default=_parse_default(fields),
        startup=_parse_startup(fields),
        cue_ids=_pattern(fields, "cue_ids"),
        strict_types=fields.flag("strict_types", default=False),
        extensions=_parse_extensions(fields),
        lacks=lacking(
            streaming=fields.flag("streaming", default=True),
            push_notifications=fields.flag("push_notifications", default=True),
        ),
    )


def _tables(fields: ScriptTable) -> list[object]:
    if "rule" not in fields:
        return []
    tables = fields.raw("rule")
    if not isinstance(tables, list):
        raise InvalidScript(f"{fields.where}: write rules with two brackets: [[rule]]")
    return cast("list[object]", tables)


def _parse_rule(table: object, where: str) -> Rule:
    fields = ScriptTable(table, where)
    name = fields.text("name", where.rpartition(": ")[2])
    fields.where = where if "name" not in fields else f"{where} ({name})"
    fields.refuse_unknown(("name", "message_id", "text", "steps"))
    message_id, text = _pattern(fields, "message_id"), _pattern(fields, "text")
    if message_id is None and text is None:
        raise InvalidScript(
            f"{fields.where}: a rule has a `message_id` or a `text` pattern", hint="what fits all messages is [default]"
        )
    return Rule(name=name, steps=parse_steps(fields.raw("steps"), fields.where), message_id=message_id, text=text)


def _parse_default(fields: ScriptTable) -> Rule:
    if "default" not in fields:
        return NO_RULE
    default = ScriptTable(fields.raw("default"), f"{fields.where}: default")
    default.refuse_unknown(("steps",))
    return Rule(name="default", steps=parse_steps(default.raw("steps"), default.where))


def _parse_startup(fields: ScriptTable) -> Question | None:
    if "startup" not in fields:
        return None
    startup = ScriptTable(fields.raw("startup"), f"{fields.where}: startup")
    startup.refuse_unknown(("question", *QUESTION_OPTIONS))
    return parse_question(startup, QuestionKind.STARTUP)


def _parse_extensions(fields: ScriptTable) -> Extensions:
    if "extensions" not in fields:
        return ()
    return read_extensions(fields.raw("extensions"), fields.where, InvalidScript)


def _pattern(fields: ScriptTable, key: str) -> re.Pattern[str] | None:
    if key not in fields:
        return None
    given = fields.text(key)
    if len(given) < 2 or not (given.startswith("/") and given.endswith("/")):
        return re.compile(rf"\A{fnmatch.translate(given)}")
    try:
        return re.compile(given[1:-1])
    except re.error as wrong:
        raise InvalidScript(f"{fields.where}: `{key}` is not a regular expression: {wrong}") from wrong
