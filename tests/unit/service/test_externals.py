"""External agents are added under an alias, and sent to by it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from synapse.core.errors import Conflict, ExternalAgentNotFound, InvalidRequest
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.requests import AddExternal, RemoveExternal, SendExternal
from synapse.core.status import ExternalAgent, ExternalAnswer
from synapse.service.externals import Externals, Found, default_alias
from tests.fakes.clock import FakeClock


class MemoryBook:
    def __init__(self) -> None:
        self.known: dict[str, ExternalAgent] = {}

    def agents(self) -> Sequence[ExternalAgent]:
        return sorted(self.known.values(), key=lambda agent: agent.alias)

    def find(self, alias: str) -> ExternalAgent | None:
        return self.known.get(alias)

    def write(self, agent: ExternalAgent) -> None:
        self.known[agent.alias] = agent

    def remove(self, alias: str) -> ExternalAgent | None:
        return self.known.pop(alias, None)


class FakeClient:
    """Finds an agent at every address, and answers every message with its text."""

    def __init__(self) -> None:
        self.name = "Other Agent"
        self.discovered: list[str] = []
        self.sent: list[tuple[str, Message, float]] = []

    async def discover(self, url: str) -> Found:
        self.discovered.append(url)
        return Found(url=url.rstrip("/"), name=self.name, description="", protocol="a2a-1.0", card={"name": self.name})

    async def send(self, agent: ExternalAgent, message: Message, seconds: float) -> ExternalAnswer:
        self.sent.append((agent.url, message, seconds))
        return ExternalAnswer(alias=agent.alias, task_id="t", state="completed", text=message.text)


class Scene:
    def __init__(self) -> None:
        self.book = MemoryBook()
        self.client = FakeClient()
        self.clock = FakeClock()
        self.externals = Externals(self.book, self.client, self.clock, lambda: "minted")

    def add(self, url: str = "http://other:9000", alias: str = "") -> ExternalAgent:
        return asyncio.run(self.externals.add(AddExternal(url=url, alias=alias)))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def say(text: str, message_id: str = "") -> Message:
    return Message(message_id=MessageId(message_id), role=Role.USER, parts=(TextPart(text=text),))


def test_an_agent_is_added_under_the_name_of_its_card(scene: Scene) -> None:
    agent = scene.add()

    assert (agent.alias, agent.name, agent.protocol) == ("other-agent", "Other Agent", "a2a-1.0")
    assert agent.added_at == "2026-01-15T10:30:00Z"
    assert asyncio.run(scene.externals.list()) == (agent,)


def test_an_agent_is_added_under_the_alias_that_was_chosen(scene: Scene) -> None:
    assert scene.add(alias="My_agent-2").alias == "My_agent-2"


@pytest.mark.parametrize("alias", ["-a", "_a", "a b", "a/b", "..", "ü", "a" * 65, "a\n"])
def test_an_alias_of_other_characters_is_refused_before_anybody_is_asked(scene: Scene, alias: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be an alias"):
        scene.add(alias=alias)

    assert scene.client.discovered == []


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("Other Agent", "other-agent"),
        ("  Café № 5!  ", "cafe-no-5"),
        ("翻訳", "other-9000"),
        ("x" * 100, "x" * 64),
    ],
)
def test_the_default_alias_comes_from_the_name_or_the_address(name: str, alias: str) -> None:
    assert default_alias(name, "http://other:9000") == alias


def test_an_alias_that_means_another_agent_is_refused_before_anybody_is_asked(scene: Scene) -> None:
    scene.add("http://one:1", alias="other")

    with pytest.raises(Conflict, match="'other' already means http://one:1") as caught:
        scene.add("http://two:2", alias="other")

    assert "--alias" in caught.value.hint
    assert scene.client.discovered == ["http://one:1"]


def test_a_default_alias_that_means_another_agent_is_refused(scene: Scene) -> None:
    scene.add("http://one:1")

    with pytest.raises(Conflict, match="already means http://one:1"):
        scene.add("http://two:2")


def test_the_same_address_again_refreshes_what_is_known(scene: Scene) -> None:
    first = scene.add("http://one:1", alias="other")
    scene.clock.advance(60)
    scene.client.name = "Renamed"

    again = scene.add("http://one:1/", alias="other")

    assert again.name == "Renamed"
    assert again.added_at == first.added_at
    assert asyncio.run(scene.externals.list()) == (again,)


def test_an_agent_that_was_removed_is_not_known_any_more(scene: Scene) -> None:
    agent = scene.add(alias="other")

    assert asyncio.run(scene.externals.remove(RemoveExternal("other"))) == agent
    with pytest.raises(ExternalAgentNotFound):
        asyncio.run(scene.externals.remove(RemoveExternal("other")))
    with pytest.raises(ExternalAgentNotFound):
        asyncio.run(scene.externals.send(SendExternal(alias="other", message=say("hi"))))


def test_a_message_goes_to_the_agent_with_an_id(scene: Scene) -> None:
    scene.add(alias="other")

    answer = asyncio.run(scene.externals.send(SendExternal(alias="other", message=say("hi")), seconds=5))
    asyncio.run(scene.externals.send(SendExternal(alias="other", message=say("again", "mine"))))

    assert answer.text == "hi"
    (url, first, seconds), (_, second, longer) = scene.client.sent
    assert (url, first.message_id, seconds) == ("http://other:9000", "minted", 5)
    assert (second.message_id, longer) == ("mine", 60)
