"""Questions that an agent asks a person on its own account, without a dialog of its program. Pure.

Such a question is a task of the agent that is never queued: it is open until a person answers it, which completes it
with the answer as its text. It waits as a task that waits for another agent's reply does, so its waiter may leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from synapse.core.errors import InvalidField
from synapse.core.question import Option, Question, QuestionKind
from synapse.core.task import Task
from synapse.core.text import LONGEST_LINE, one_line, safe_line, safe_lines

MOST_OPEN_QUESTIONS: Final = 20
"""How many questions of one agent may wait for a person."""
MOST_OPTIONS: Final = 20
LONGEST_OPTION: Final = 200
_LONGEST_TEXT: Final = 4000
_MOST_LINES: Final = 50


def new_question(text: str, options: Sequence[str], question_id: str) -> Question:
    """Returns the question with this text; its options are numbered from 1. Raises InvalidField."""
    asked = text.strip()
    if not asked:
        raise InvalidField("message", "has no text", hint="ask in words; a person reads them")
    if len(asked) > _LONGEST_TEXT or asked.count("\n") >= _MOST_LINES:
        raise InvalidField(
            "message",
            f"has {len(asked)} characters in {asked.count(chr(10)) + 1} lines",
            hint=f"a question has at most {_LONGEST_TEXT} characters and {_MOST_LINES} lines",
        )
    first, _, rest = asked.partition("\n")
    title = safe_line(first)
    detail = safe_lines(rest if len(first) <= LONGEST_LINE else asked)
    offered = tuple(Option(key=str(number), label=label) for number, label in enumerate(_labels(options), 1))
    return Question(
        id=question_id,
        kind=QuestionKind.CHOICE,
        title=title,
        detail=detail,
        options=offered,
        takes_text=True,
        source="agent",
    )


def is_open_question(task: Task) -> bool:
    """Decides whether the task is a question of the agent's own that no person has answered yet."""
    return task.asks_person and task.question is not None


def late_answer(question: str, task: Task, answer: str) -> str:
    """Returns the message to an agent whose waiter had left when a person answered its question."""
    # The question is the agent's own text, perhaps a peer's: it must not end the quotation and go on as the person.
    asked = question.replace('"', "'")
    return f'Answer to your question "{asked}" (task {task.short_id}): {answer}'


def _labels(options: Sequence[str]) -> list[str]:
    if len(options) > MOST_OPTIONS:
        raise InvalidField("options", f"are {len(options)}", hint=f"offer at most {MOST_OPTIONS}")
    labels = [one_line(option) for option in options]
    if any(not label or len(label) > LONGEST_OPTION for label in labels):
        raise InvalidField("options", f"must each have 1 to {LONGEST_OPTION} characters", hint="shorten them")
    if len({label.lower() for label in labels}) < len(labels):
        raise InvalidField("options", "must differ from each other", hint="leave out those that repeat another")
    return labels
