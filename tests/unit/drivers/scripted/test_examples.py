"""Every example script plays, and plays what it promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.core.driver import Answered, ArtifactProduced, Failed, InputRequested, Progress, Refused, TurnEvent
from synapse.core.errors import AgentExited
from synapse.core.message import FilePart
from synapse.drivers.scripted.driver import ScriptedDriver
from synapse.drivers.scripted.script import read_script
from tests.fakes.clock import FakeClock
from tests.fakes.script_player import Pauses, answer_of, play, turn

EXAMPLES = Path(__file__).resolve().parents[4] / "docs" / "examples"
CUES = ["hi", "rm -rf all", "deploy web", "think", "paint me", "report", "log", "download", "anything"]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
async def test_every_example_plays(path: Path) -> None:
    driver = ScriptedDriver(read_script(path), FakeClock(), pause=Pauses())

    for number, cue in enumerate(CUES):
        events = await play(driver, turn(cue, task_id=f"t-{number}"))
        assert isinstance(events[-1], Answered | InputRequested | Refused | Failed)


async def test_the_example_conversation_goes_from_question_to_question() -> None:
    driver = ScriptedDriver(read_script(EXAMPLES / "conversation.toml"), FakeClock(), pause=Pauses())

    assert isinstance((await play(driver, turn("deploy web")))[-1], InputRequested)
    assert isinstance((await play(driver, turn("staging", first=False)))[-1], InputRequested)
    assert answer_of(await play(driver, turn("token", first=False))) == "deployed"
    with pytest.raises(AgentExited):
        await play(driver, turn("crash", task_id="t-2"))


@pytest.mark.parametrize(
    ("cue", "kind"),
    [
        ("tck-complete-task", Answered),
        ("tck-message-response", Answered),
        ("tck-input-required", InputRequested),
        ("tck-auth-required", InputRequested),
        ("tck-reject-task", Refused),
        ("tck-task-failure", Failed),
        ("tck-artifact-text", ArtifactProduced),
        ("tck-artifact-file-url", ArtifactProduced),
        ("tck-artifact-file", ArtifactProduced),
        ("tck-artifact-data", ArtifactProduced),
        ("tck-stream-artifact-chunked", Progress),
        ("tck-stream-002", Answered),
        ("tck-delayed-complete", Progress),
        ("test-resubscribe-message-id", Progress),
        ("cancel-test-message-id", InputRequested),
        ("test-history-message-1", InputRequested),
    ],
)
async def test_the_conformance_example_plays_each_cue(cue: str, kind: type[TurnEvent]) -> None:
    driver = ScriptedDriver(read_script(EXAMPLES / "conformance.toml"), FakeClock(), pause=Pauses())

    assert isinstance((await play(driver, turn("TCK", message_id=f"{cue}-0a1b")))[0], kind)


async def test_the_conformance_example_tells_a_linked_file_from_a_sent_one() -> None:
    driver = ScriptedDriver(read_script(EXAMPLES / "conformance.toml"), FakeClock(), pause=Pauses())

    async def part(cue: str) -> object:
        handed = (await play(driver, turn("TCK", message_id=cue)))[0]
        assert isinstance(handed, ArtifactProduced)
        return handed.artifact.parts[0]

    name, media_type = "output.txt", "text/plain"
    assert await part("tck-artifact-file-url-1") == FilePart(
        url="https://example.com/output.txt", name=name, media_type=media_type
    )
    assert await part("tck-artifact-file-1") == FilePart(content=b"tck", name=name, media_type=media_type)
