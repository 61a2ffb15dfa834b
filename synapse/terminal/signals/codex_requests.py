"""What Codex's app-server (0.166) asks its clients, and the result that answers it; the first client to answer wins."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final, cast

from synapse.core.question import Choice, Leaning, Question, QuestionKind
from synapse.terminal.evidence import Source
from synapse.terminal.safe_text import safe_line, safe_lines
from synapse.terminal.signals.options import numbered, position
from synapse.terminal.signals.report import Record, items, part, word

_SHELLS: Final = ("bash", "sh", "zsh")
_INPUT: Final = "item/tool/requestUserInput"
_ALL: Final = ("accept", "acceptForSession", "cancel")
"""What its TUI offers where the request does not say what may be chosen, in the same order."""
_LEANINGS: Final = {"accept": Leaning.ALLOW, "decline": Leaning.DENY, "cancel": Leaning.DENY}
_LABELS: Final = {
    "accept": "Yes, proceed",
    "acceptForSession": "Yes, and don't ask again in this conversation",
    "acceptWithExecpolicyAmendment": "Yes, and don't ask again for commands like this",
    "applyNetworkPolicyAmendment": "Yes, and remember it for this host",
    "decline": "No, go on without it",
    "cancel": "No, and end the turn",
}
_ONLY_THERE: Final = "it asks several things at once: answer them in its terminal"


def question_id(request_id: object) -> str:
    """The name of a request's question: the server counts its requests."""
    return f"codex-{request_id}"


def read_question(request: Record, changes: Record) -> Question | None:
    """The question of a request; None for requests that are no matter of a person's answer from here.

    `changes` is the item that the request is about, where it was told of: a change of files is in there only.
    """
    match word(request, "method"):
        case "item/commandExecution/requestApproval":
            return _approval(request, "Would you like to run the following command?", _command(part(request, "params")))
        case "item/fileChange/requestApproval":
            return _approval(request, "Would you like to make the following edits?", _edits(changes))
        case "item/tool/requestUserInput":
            return _input(request)
        case _:
            return None


def result_for(request: Record, choice: Choice) -> Mapping[str, Any] | None:
    """The result that says the choice; None when there is none for it."""
    if word(request, "method") == _INPUT:
        return _input_result(request, choice)
    decisions = _decisions(request)
    place = position(choice.option, len(decisions))
    return None if place is None else {"decision": decisions[place]}


def _approval(request: Record, title: str, detail: str) -> Question:
    reason = word(request, "params", "reason")
    return Question(
        id=question_id(request.get("id")),
        kind=QuestionKind.PERMISSION,
        title=title,
        detail=safe_lines("\n".join(filter(None, (f"Reason: {reason}" if reason else "", detail)))),
        options=numbered((_label(decision), _leaning(decision)) for decision in _decisions(request)),
        source=Source.SIGNAL,
    )


def _decisions(request: Record) -> list[str | Record]:
    offered: object = part(request, "params").get("availableDecisions")
    if not isinstance(offered, list) or not offered:
        return list(_ALL)
    return [cast("str | Record", one) for one in cast("list[object]", offered) if isinstance(one, str | Mapping)]


def _name(decision: str | Record) -> str:
    return decision if isinstance(decision, str) else next(iter(decision), "")


def _label(decision: str | Record) -> str:
    """What it would do; where it remembers something, also what."""
    name = _name(decision)
    remembered = "" if isinstance(decision, str) else _remembered(part(decision, name))
    return remembered or _LABELS.get(name, name)


def _remembered(amendment: Record) -> str:
    begin: object = amendment.get("execpolicy_amendment")
    if isinstance(begin, list) and begin:
        command = shlex.join(str(each) for each in cast("list[object]", begin))
        return f"Yes, and don't ask again for commands that start with `{command}`"
    host = word(amendment, "network_policy_amendment", "host")
    is_blocked = word(amendment, "network_policy_amendment", "action") == "deny"
    if host:
        return f"No, and block {host} from now on" if is_blocked else f"Yes, and allow {host} from now on"
    return ""


def _leaning(decision: str | Record) -> Leaning:
    name = _name(decision)
    if name in _LEANINGS:
        return _LEANINGS[name]
    return Leaning.ALLOW_ALWAYS if name.startswith("accept") else Leaning.OTHER


def _command(params: Record) -> str:
    """What will run, whole, without the shell that it is given to. Its summary leaves out what it thinks harmless."""
    command = word(params, "command")
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    is_script = len(words) == 3 and words[0].rpartition("/")[2] in _SHELLS and words[1] in ("-c", "-lc")
    return words[2] if is_script else command


def _edits(changes: Record) -> str:
    return "\n".join(f"{word(change, 'path')}\n{word(change, 'diff')}" for change in items(changes, "changes"))


def _input(request: Record) -> Question:
    asked = items(part(request, "params"), "questions")
    is_one = len(asked) == 1
    options = items(asked[0], "options") if is_one else []
    told = [f"{word(one, 'label')}: {word(one, 'description')}" for one in options if word(one, "description")]
    return Question(
        id=question_id(request.get("id")),
        kind=QuestionKind.CHOICE,
        title=safe_line(word(asked[0], "question")) if asked else "",
        detail=safe_lines("\n".join(told if is_one else [word(one, "question") for one in asked])),
        options=numbered((word(option, "label"), Leaning.OTHER) for option in options),
        takes_text=is_one and (not options or asked[0].get("isOther") is True),
        source=Source.SIGNAL,
        hint="" if is_one else _ONLY_THERE,
    )


def _input_result(request: Record, choice: Choice) -> Mapping[str, Any] | None:
    asked = items(part(request, "params"), "questions")
    if len(asked) != 1:
        return None
    options = items(asked[0], "options")
    place = position(choice.option, len(options))
    answer = choice.text if place is None else word(options[place], "label")
    return {"answers": {word(asked[0], "id"): {"answers": [answer]}}} if answer else None
