"""External agents are added, called and removed by their alias."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence

import pytest

from synapse.core.errors import (
    Conflict,
    ExternalAgentFailed,
    ExternalAgentNotFound,
    InvalidRequest,
    StoreCorrupt,
    WaitTimedOut,
)
from synapse.core.message import Message, MessageId, Role, TextPart
from synapse.core.requests import AddExternal, ExternalAgent, ExternalAnswer, RemoveExternal, SendExternal
from synapse.external.agents import DiscoveredAgent, Externals, default_alias
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
        self.address_checked: list[bool] = []
        self.shown: list[Mapping[str, str]] = []
        self.sent: list[tuple[str, Message, float]] = []

    async def discover(self, url: str, credentials: Mapping[str, str], *, address_checked: bool) -> DiscoveredAgent:
        self.discovered.append(url)
        self.address_checked.append(address_checked)
        self.shown.append(credentials)
        return DiscoveredAgent(
            url=url.rstrip("/"), name=self.name, description="", protocol="a2a-1.0", card={"name": self.name}
        )

    async def send(self, agent: ExternalAgent, message: Message, seconds: float, *, task_id: str) -> ExternalAnswer:
        self.sent.append((agent.url, message, seconds))
        return ExternalAnswer(alias=agent.alias, task_id=task_id or "t", state="completed", text=message.text)

    async def stream(
        self, agent: ExternalAgent, message: Message, seconds: float, *, task_id: str
    ) -> AsyncGenerator[ExternalAnswer, None]:
        yield await self.send(agent, message, seconds, task_id=task_id)

    async def cancel(self, agent: ExternalAgent, task_id: str, _seconds: float) -> ExternalAnswer:
        if task_id == "slow":
            raise TimeoutError
        if task_id == "unknown":
            raise ExternalAgentFailed("it refused: no task 'unknown'")
        return ExternalAnswer(alias=agent.alias, task_id=task_id, state="canceled", text="")


class MemoryCredentials:
    def __init__(self) -> None:
        self.known: dict[str, Mapping[str, str]] = {}
        self.is_broken = False

    def find(self, alias: str) -> Mapping[str, str]:
        if self.is_broken:
            raise StoreCorrupt("it does not hold credentials")
        return self.known.get(alias, {})

    def write(self, alias: str, headers: Mapping[str, str]) -> None:
        self.known[alias] = headers

    def remove(self, alias: str) -> None:
        self.known.pop(alias, None)


class Scene:
    def __init__(self) -> None:
        self.book = MemoryBook()
        self.client = FakeClient()
        self.clock = FakeClock()
        self.credentials = MemoryCredentials()
        self.externals = Externals(self.book, self.client, self.clock, lambda: "minted", self.credentials)

    async def add(self, url: str = "http://other:9000", alias: str = "", **credentials: str) -> ExternalAgent:
        return await self.externals.add(AddExternal(url=url, alias=alias, credentials=credentials))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def say(text: str, message_id: str = "") -> Message:
    return Message(message_id=MessageId(message_id), role=Role.USER, parts=(TextPart(text=text),))


async def test_an_agent_is_added_under_the_name_of_its_card(scene: Scene) -> None:
    agent = await scene.add()

    assert (agent.alias, agent.name, agent.protocol) == ("other-agent", "Other Agent", "a2a-1.0")
    assert agent.added_at == "2026-01-15T10:30:00Z"
    assert await scene.externals.list() == (agent,)


async def test_an_agent_is_added_under_the_alias_that_was_chosen(scene: Scene) -> None:
    assert (await scene.add(alias="My_agent-2")).alias == "My_agent-2"


@pytest.mark.parametrize("alias", ["key.ci", "unverified.x", "-a", "_a", "a b", "a/b", "..", "ü", "a" * 65, "a\n"])
async def test_an_invalid_alias_is_refused_before_any_request(scene: Scene, alias: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be an alias"):
        await scene.add(alias=alias)

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


async def test_an_alias_of_another_agent_is_refused_before_any_request(scene: Scene) -> None:
    await scene.add("http://one:1", alias="other")

    with pytest.raises(Conflict, match="'other' already means http://one:1") as caught:
        await scene.add("http://two:2", alias="other")

    assert "--alias" in caught.value.hint
    assert scene.client.discovered == ["http://one:1"]


async def test_a_default_alias_of_another_agent_is_refused(scene: Scene) -> None:
    await scene.add("http://one:1")

    with pytest.raises(Conflict, match="already means http://one:1"):
        await scene.add("http://two:2")


async def test_adding_an_address_again_refreshes_its_entry(scene: Scene) -> None:
    first = await scene.add("http://one:1", alias="other")
    scene.clock.advance(60)
    scene.client.name = "Renamed"

    again = await scene.add("http://one:1/", alias="other")

    assert again.name == "Renamed"
    assert again.added_at == first.added_at
    assert await scene.externals.list() == (again,)


async def test_a_removed_agent_is_no_longer_known(scene: Scene) -> None:
    agent = await scene.add(alias="other")

    assert await scene.externals.remove(RemoveExternal("other")) == agent
    with pytest.raises(ExternalAgentNotFound):
        await scene.externals.remove(RemoveExternal("other"))
    with pytest.raises(ExternalAgentNotFound):
        await scene.externals.send(SendExternal(alias="other", message=say("hi")))


async def test_a_message_goes_to_the_agent_with_an_id(scene: Scene) -> None:
    await scene.add(alias="other")

    answer = await scene.externals.send(SendExternal(alias="other", message=say("hi")), seconds=5)
    await scene.externals.send(SendExternal(alias="other", message=say("again", "mine")))

    assert answer.text == "hi"
    (url, first, seconds), (_, second, longer) = scene.client.sent
    assert (url, first.message_id, seconds) == ("http://other:9000", "minted", 5)
    assert (second.message_id, longer) == ("mine", 60)


async def test_credentials_are_sent_at_once_and_stored(scene: Scene) -> None:
    agent = await scene.add(alias="other", Authorization="Bearer secret")

    await scene.add(alias="other")

    assert scene.client.shown == [{"Authorization": "Bearer secret"}] * 2
    assert "secret" not in repr(agent)
    await scene.externals.remove(RemoveExternal("other"))
    assert scene.credentials.known == {}


async def test_new_credentials_replace_those_that_cannot_be_read(scene: Scene) -> None:
    await scene.add(alias="other", Authorization="Bearer secret")
    scene.credentials.is_broken = True
    with pytest.raises(StoreCorrupt):
        await scene.add(alias="other")

    await scene.add(alias="other", Authorization="Bearer new")

    assert scene.credentials.known["other"] == {"Authorization": "Bearer new"}


async def test_credentials_of_an_alias_are_not_sent_to_another_agent(scene: Scene) -> None:
    scene.credentials.known["other"] = {"Authorization": "Bearer left"}

    await scene.add("http://stranger:1", alias="other")

    assert scene.client.shown == [{}]


@pytest.mark.parametrize(
    ("name", "value"), [("Bad Name", "x"), ("", "x"), ("Good", ""), ("Good", "a\nb"), ("Good", "gehe\u00ef\u006d")]
)
async def test_an_invalid_header_is_refused_without_quoting_its_value(scene: Scene, name: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await scene.add(**{name: value})

    assert not value or value == "x" or value not in str(caught.value)
    assert scene.client.discovered == []


async def test_a_task_is_continued_followed_and_canceled(scene: Scene) -> None:
    await scene.add(alias="other")
    request = SendExternal(alias="other", message=say("yes"), task_id="t-9")

    assert (await scene.externals.send(request)).task_id == "t-9"
    result = [answer.task_id async for answer in scene.externals.stream(request)]

    assert result == ["t-9"]
    assert (await scene.externals.cancel("other", "t-9")).state == "canceled"
    with pytest.raises(WaitTimedOut):
        await scene.externals.cancel("other", "slow")
    with pytest.raises(ExternalAgentNotFound):
        await scene.externals.cancel("nobody", "t-9")
    with pytest.raises(ExternalAgentFailed, match=r"^'other': it refused: no task 'unknown'$"):
        await scene.externals.cancel("other", "unknown")
