"""A profile: everything that Synapse knows about one CLI, as data.

It says what to start, how to type and interrupt, how long things take, and by which rules the screen is read: where the
input is, what a dialog looks like, what belongs to an answer. Profiles are TOML files; `docs/howto/wrap-a-cli.md`
explains every key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from synapse.core.agent import AGENT_STATES
from synapse.core.errors import InvalidProfile
from synapse.core.extension import Extensions, read_extensions
from synapse.core.question import QuestionKind
from synapse.core.requests import lacking
from synapse.core.tables import ProfileTable

Pattern = re.Pattern[str]

SCREEN_REGION: Final = "screen"
"""The region that every profile has: all rows."""
# A kernel line discipline silently cuts a line at 4,096 bytes; the rest is room for the envelope's header.
LINE_LIMIT_BYTES: Final = 3800
_DEFAULT_PORTS: Final = (8200, 8299)
_HIGHEST_PORT: Final = 65535
_CTRL_U: Final = b"\x15"
_MENU: Final = "menu"


class TypingStyle(StrEnum):
    """How a text is typed while the program has not switched bracketed paste on."""

    PASTE = "paste"
    """As a bracketed paste all the same."""
    LINE = "line"
    """As plain keys on one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypingRule:
    """How a message gets into the program."""

    style: TypingStyle = TypingStyle.LINE
    enter: bytes = b"\r"
    newline: str = " "
    """Replaces a line break where a line break would submit (plain keys)."""
    paste_marks: tuple[Pattern, ...] = ()
    """Texts that the input may show instead of a long paste, such as `[Pasted text #1 +20 lines]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupt:
    """How to make the program stop its work: a signal to its process group, or keys with a pause between them."""

    signal: str = ""
    keys: tuple[bytes, ...] = ()
    pause: float = 0.1
    """Seconds between the keys; a program that reads two ESC at once takes them for Alt+ESC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long things take, in seconds."""

    quiet: float = 0.1
    """No output for this long before a prompt counts; without a prompt rule, before the program counts as ready."""
    settle: float = 0.5
    """No output for this long, with the prompt back, before the turn counts as answered."""
    unseen: float = 2.0
    """Replaces `settle` in a turn during which the program was never seen to work."""
    person: float = 2.0
    """No key of a person for this long before anything is typed."""
    echo: float = 2.0
    """How long a typed text may take to appear; a missing echo is not a failure."""
    enter: float = 0.0
    """The least pause between the shown text and Enter: some programs take a faster Enter for a part of the paste."""
    proof: float = 10.0
    """How long proof of submission may take before the message is in doubt, and an answered dialog to close."""
    dialog: float = 300.0
    """How long a typed text may wait for Enter behind a dialog before it is in doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A named part of the screen. Each limit narrows the rows that the limits above it left."""

    above: Pattern | None = None
    """The rows above the last row that matches."""
    below: Pattern | None = None
    """The rows below the last row that matches."""
    begin: Pattern | None = None
    """The rows from the last row that matches, that row included."""
    between: Pattern | None = None
    """The rows between the last two rows that match."""
    last: int = 0
    """This many rows that are not blank, from the bottom, with the blank rows between and below them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRule:
    """How the input is found on the screen, and which text is in it."""

    pattern: Pattern
    """Matches the row where the input begins; its group `text` is the typed text. The region's first match counts."""
    region: str = SCREEN_REGION
    at_cursor: bool = False
    """The cursor's row must match: the rule for programs that read a line."""
    holds_cursor: bool = False
    """The input counts only if the cursor stands in it: while a dialog is open, it stands elsewhere."""
    until: Pattern | None = None
    """The input ends above the first row below that matches; without it, at the end of the region."""
    further: Pattern | None = None
    """Matches each further row of the input that is not blank. The input is then found from the cursor: it begins at
    the nearest row at or above the cursor that matches `pattern`, whatever frames and old rows stand around it."""
    margin: Pattern | None = None
    """Cut from each further row of the input: indentation, a border."""
    placeholders: tuple[Pattern, ...] = ()
    """Texts that mean that the input is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenRule:
    """Holds if the region shows each of `every`, at least one of `some` (if there are any), and none of `never`."""

    every: tuple[Pattern, ...] = ()
    some: tuple[Pattern, ...] = ()
    never: tuple[Pattern, ...] = ()
    region: str = SCREEN_REGION


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingRule:
    """A mark that the screen shows while the program works."""

    name: str
    rule: ScreenRule
    outranks_title: bool = False
    """The title says something else meanwhile, which does not count."""


class Choosing(StrEnum):
    """Which keys choose an option of a dialog."""

    NONE = ""
    """None: the screen does not show what is highlighted, so it is unknown what Enter would choose."""
    DIGIT = "digit"
    """The option's key, at once."""
    ARROWS = "arrows"
    """The arrow keys, which move the highlight to the option, then Enter."""
    LINE = "line"
    """The option's key and Enter, as a line."""
    KEY = "key"
    """The key that the option names, at once: Enter, Esc, Shift+Tab."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogRule:
    """A question of the program that only a person may answer, how to read it, and a hint for that person."""

    name: str
    hint: str
    rule: ScreenRule
    kind: QuestionKind | None = QuestionKind.PERMISSION
    """None for a menu that a person opened: it asks nothing."""
    hides_prompt: bool = False
    """The dialog replaces the input: while the input is visible, the dialog is history."""
    begin: Pattern | None = None
    """The dialog begins at the last row above its options that matches; without it, at the top of the screen."""
    title: Pattern | None = None
    """Matches the row that asks; its first group is the question. Without it, the last row above the options asks."""
    option: Pattern | None = None
    """Matches an option, with the optional groups `key`, `label` and `mark` (of the highlighted one); without it,
    options are numbered rows."""
    drop: tuple[Pattern, ...] = ()
    """Rows of the dialog that are not about the question."""
    choose: Choosing = Choosing.NONE
    allow: Pattern | None = None
    """Matches the label of the option that allows once, if its words alone do not say so."""
    text: Pattern | None = None
    """Matches the label of the option that takes free text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRule:
    """How to cut an answer out of the screen."""

    echo: Pattern | None = None
    """Matches the mark in front of a submitted message where the program shows it again."""
    end: tuple[Pattern, ...] = ()
    """The answer ends above the first row below the message that matches one of these."""
    drop: tuple[Pattern, ...] = ()
    """Rows that are not part of an answer: spinners, statistics, borders."""
    strip: tuple[Pattern, ...] = ()
    """Cut from each row: bullets, borders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """How the program itself reports its state. Without an adapter the agent is judged by its terminal alone."""

    adapter: str = ""
    """Switches the program's signals on and reads them, for example `claude`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpRule:
    """What the program does with the MCP server that its launch gives to it."""

    instructions: bool = False
    """It passes the server's instructions on to its model, so that they need not be typed."""
    wait: float = 50.0
    """The longest wait in one call of a tool, in seconds; the program must not end a call before that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One CLI."""

    name: str
    title: str
    command: tuple[str, ...]
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    ports: tuple[int, int] = _DEFAULT_PORTS
    """First and last port of its instances, both included."""
    install_hint: str = ""
    """The command that installs the program."""
    limit_bytes: int = LINE_LIMIT_BYTES
    """A longer message goes as a private file and a reference."""
    clear_keys: bytes = _CTRL_U
    """Keys that clear a one-line input."""
    envelope: bool = True
    """False to type the bare text, for a program that takes every line for its own language."""
    instructions: bool = True
    """False for a program that cannot read: it is not told at its start how to send and reply."""
    shell: tuple[str, ...] = ()
    """The shell that runs the commands of the program's model, such as `$SHELL -c`; empty if it runs none.

    `$SHELL` is read from the environment, `$LOGIN_SHELL` from the user database.
    """
    typing: TypingRule = field(default_factory=TypingRule)
    interrupt: Interrupt = field(default_factory=Interrupt)
    times: Times = field(default_factory=Times)
    regions: Mapping[str, Region] = field(default_factory=dict[str, Region])
    prompt: PromptRule | None = None
    dialogs: tuple[DialogRule, ...] = ()
    working: tuple[WorkingRule, ...] = ()
    titles: Mapping[str, Pattern] = field(default_factory=dict[str, Pattern])
    """State → pattern of the window's title in that state."""
    answer: AnswerRule = field(default_factory=AnswerRule)
    signals: Signals = field(default_factory=Signals)
    mcp: McpRule = field(default_factory=McpRule)
    extensions: Extensions = ()
    """The A2A extensions that its agents declare."""
    streaming: bool = True
    push_notifications: bool = True
    """False to switch that A2A capability off."""

    @property
    def lacks(self) -> tuple[str, ...]:
        """The A2A capabilities that are switched off for its agents."""
        return lacking(streaming=self.streaming, push_notifications=self.push_notifications)

    @property
    def reads_lines(self) -> bool:
        """True for a line program: its input is the cursor's line, and Enter moves the cursor off it."""
        return self.prompt is None or self.prompt.at_cursor


def parse_profile(table: Mapping[str, Any], name: str) -> Profile:
    """Returns the profile that a file's table describes.

    Raises InvalidProfile, whose message names the key.
    """
    top = ProfileTable(table, name)
    profile = Profile(
        name=name,
        title=top.text("title", name.capitalize()),
        command=_command(top),
        args=top.texts("args"),
        env=top.mapping("env"),
        ports=_ports(top),
        install_hint=top.text("install_hint"),
        limit_bytes=top.whole("limit_bytes", LINE_LIMIT_BYTES),
        clear_keys=b"".join(top.keys("clear_keys")) or _CTRL_U,
        envelope=top.flag("envelope", default=True),
        instructions=top.flag("instructions", default=True),
        shell=top.texts("shell"),
        typing=_typing(top.table("typing")),
        interrupt=_interrupt(top.table("interrupt")),
        times=_times(top.table("times"), has_prompt="prompt" in top),
        regions={key: _region(fields) for key, fields in top.table("regions").named()},
        prompt=_prompt(top.table("prompt")) if "prompt" in top else None,
        dialogs=tuple(_dialog(fields) for fields in top.tables("dialogs")),
        working=tuple(_working(fields) for fields in top.tables("working")),
        titles=_titles(top.table("titles")),
        answer=_answer(top.table("answer")),
        signals=_signals(top.table("signals")),
        mcp=_mcp(top.table("mcp")),
        extensions=read_extensions(top.value("extensions", []), f"profile '{name}'", InvalidProfile),
        streaming=top.flag("streaming", default=True),
        push_notifications=top.flag("push_notifications", default=True),
    )
    top.done()
    _require_regions(profile)
    return profile


def _command(top: ProfileTable) -> tuple[str, ...]:
    command = top.texts("command")
    return command if command and all(command) else top.refuse("command", "must name a program")


def _ports(top: ProfileTable) -> tuple[int, int]:
    if "ports" not in top:
        return _DEFAULT_PORTS
    value = top.value("ports")
    match value:
        case [int() as first, int() as last] if 0 < first <= last <= _HIGHEST_PORT:
            return (first, last)
        case _:
            return top.refuse("ports", "must be [first, last]", value)


def _typing(fields: ProfileTable) -> TypingRule:
    style = fields.text("style", TypingStyle.LINE)
    if style not in tuple(TypingStyle):
        fields.refuse("style", f"must be one of {', '.join(TypingStyle)}", style)
    typing = TypingRule(
        style=TypingStyle(style),
        enter=b"".join(fields.keys("enter")) or b"\r",
        newline=fields.text("newline", " "),
        paste_marks=fields.patterns("paste_marks"),
    )
    if any(char < " " for char in typing.newline):
        fields.refuse("newline", "must not hold control characters", typing.newline)
    fields.done()
    return typing


def _interrupt(fields: ProfileTable) -> Interrupt:
    signal, keys = fields.text("signal"), fields.keys("keys")
    if signal and keys:
        fields.refuse("signal", "and keys exclude each other")
    if signal and not signal.startswith("SIG"):
        fields.refuse("signal", "must be the name of a signal, such as SIGINT", signal)
    interrupt = Interrupt(signal=signal, keys=keys, pause=fields.number("pause", Interrupt().pause))
    fields.done()
    return interrupt


def _times(table: ProfileTable, *, has_prompt: bool) -> Times:
    # Without a prompt rule silence is the only evidence, so it has to last longer.
    default = Times() if has_prompt else Times(quiet=1.0, settle=1.0)
    times = Times(**{time.name: table.number(time.name, getattr(default, time.name)) for time in fields(Times)})
    table.done()
    return times


def _region(fields: ProfileTable) -> Region:
    region = Region(
        above=fields.pattern("above"),
        below=fields.pattern("below"),
        begin=fields.pattern("begin"),
        between=fields.pattern("between"),
        last=fields.whole("last", 0),
    )
    fields.done()
    return region


def _prompt(fields: ProfileTable) -> PromptRule:
    pattern = fields.pattern("pattern")
    if pattern is None or "text" not in pattern.groupindex:
        fields.refuse("pattern", "must be given, with a group (?P<text>…) for the typed text")
    rule = PromptRule(
        pattern=pattern,
        region=fields.text("region", SCREEN_REGION),
        at_cursor=fields.flag("at_cursor"),
        holds_cursor=fields.flag("holds_cursor"),
        until=fields.pattern("until"),
        further=fields.pattern("further"),
        margin=fields.pattern("margin"),
        placeholders=fields.patterns("placeholders"),
    )
    fields.done()
    return rule


def _screen_rule(fields: ProfileTable) -> ScreenRule:
    rule = ScreenRule(
        every=fields.patterns("every"),
        some=fields.patterns("some"),
        never=fields.patterns("never"),
        region=fields.text("region", SCREEN_REGION),
    )
    if not rule.every and not rule.some:
        fields.refuse("every", "or some must be given")
    return rule


def _dialog(fields: ProfileTable) -> DialogRule:
    dialog = DialogRule(
        name=fields.text("name"),
        hint=fields.text("hint"),
        rule=_screen_rule(fields),
        kind=_dialog_kind(fields),
        hides_prompt=fields.flag("hides_prompt"),
        begin=fields.pattern("begin"),
        title=fields.pattern("title"),
        option=fields.pattern("option"),
        drop=fields.patterns("drop"),
        choose=_choosing(fields),
        allow=fields.pattern("allow"),
        text=fields.pattern("text"),
    )
    if not dialog.name:
        fields.refuse("name", "must be given")
    fields.done()
    return dialog


def _dialog_kind(fields: ProfileTable) -> QuestionKind | None:
    kind = fields.text("kind", QuestionKind.PERMISSION)
    if kind not in (_MENU, *QuestionKind):
        fields.refuse("kind", f"must be one of {', '.join((*QuestionKind, _MENU))}", kind)
    return None if kind == _MENU else QuestionKind(kind)


def _choosing(fields: ProfileTable) -> Choosing:
    choose = fields.text("choose")
    if choose not in tuple(Choosing):
        fields.refuse("choose", f"must be one of {', '.join(filter(None, Choosing))}", choose)
    return Choosing(choose)


def _working(fields: ProfileTable) -> WorkingRule:
    working = WorkingRule(
        name=fields.text("name", "working"),
        rule=_screen_rule(fields),
        outranks_title=fields.flag("outranks_title"),
    )
    fields.done()
    return working


def _titles(fields: ProfileTable) -> dict[str, Pattern]:
    found = {state: pattern for state in AGENT_STATES if (pattern := fields.pattern(state)) is not None}
    fields.done()
    return found


def _answer(fields: ProfileTable) -> AnswerRule:
    rule = AnswerRule(
        echo=fields.pattern("echo"),
        end=fields.patterns("end"),
        drop=fields.patterns("drop"),
        strip=fields.patterns("strip"),
    )
    fields.done()
    return rule


def _signals(fields: ProfileTable) -> Signals:
    signals = Signals(adapter=fields.text("adapter"))
    fields.done()
    return signals


def _mcp(fields: ProfileTable) -> McpRule:
    rule = McpRule(instructions=fields.flag("instructions"), wait=fields.number("wait", McpRule().wait))
    if rule.wait <= 0:
        fields.refuse("wait", "must be more than 0 seconds", rule.wait)
    fields.done()
    return rule


def _require_regions(profile: Profile) -> None:
    used = {dialog.rule.region for dialog in profile.dialogs} | {mark.rule.region for mark in profile.working}
    if profile.prompt is not None:
        used.add(profile.prompt.region)
    missing = sorted(used - {SCREEN_REGION, *profile.regions})
    if missing:
        raise InvalidProfile(
            f"profile '{profile.name}': there is no region '{missing[0]}'",
            hint=f"define it: [regions.{missing[0]}]",
        )
