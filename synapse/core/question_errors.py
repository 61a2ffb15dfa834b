"""What can go wrong when somebody answers what an agent asks; the same tree as `core.errors`.

Conflict          NothingAsked · QuestionGone
InvalidRequest    InvalidChoice
"""

from __future__ import annotations

from collections.abc import Iterable

from synapse.core.errors import Conflict, InvalidRequest


class NothingAsked(Conflict):
    """Nobody is asked anything there."""

    code = "nothing_asked"
    hint = "`synapse approvals` shows what agents wait for"


class QuestionGone(Conflict):
    """Somebody answered first, or the question is not asked any more."""

    code = "question_gone"
    hint = "`synapse approvals` shows what is asked now"


class InvalidChoice(InvalidRequest):
    """The question does not offer that answer."""

    code = "invalid_choice"

    def __init__(self, message: str, offered: Iterable[str]) -> None:
        answers = ", ".join(offered)
        super().__init__(message, hint=f"choose one of: {answers}" if answers else "`synapse attach` and answer there")
