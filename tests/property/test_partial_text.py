"""However an answer grows and is rewritten, the task shows what was said last, and the log only what was new."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from synapse.core.driver import PartialAnswer
from synapse.core.events import ArtifactAdded
from synapse.tasks import outcomes
from synapse.tasks.journal import rebuild
from tests.fakes.facts import after, opened

TEXTS = st.lists(st.text(st.sampled_from("ab \n"), min_size=1, max_size=6), min_size=1, max_size=8)
GROWING = st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=20)


@given(TEXTS)
def test_the_task_shows_what_was_said_last(texts: list[str]) -> None:
    task = rebuild(None, (opened(),))
    for text in texts:
        task = rebuild(task, outcomes.events_for(task, PartialAnswer(text, "signal"), after(1)))
        (artifact,) = task.artifacts
        assert artifact.text == text
        assert artifact.metadata == {"source": "signal", "inferred": True, "partial": True}


@given(GROWING)
def test_a_text_that_only_grows_is_written_once(pieces: list[str]) -> None:
    task = rebuild(None, (opened(),))
    written = 0
    for end in range(len(pieces)):
        facts = outcomes.events_for(task, PartialAnswer("".join(pieces[: end + 1]), "signal"), after(1))
        written += sum(len(fact.artifact.text) for fact in facts if isinstance(fact, ArtifactAdded))
        task = rebuild(task, facts)

    assert task.artifacts[0].text == "".join(pieces)
    assert written == len("".join(pieces))
