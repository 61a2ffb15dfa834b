"""External agents are found by their cards over real sockets; other documents are refused."""

from __future__ import annotations

import socket

import pytest

from synapse.core.errors import ExternalAgentFailed, ExternalAgentUnreachable
from synapse.core.requests import AddExternal, ExternalAgent
from synapse.external.agents import Externals
from synapse.external.client import A2AClient
from tests.fakes.strangers import (
    CARD,
    Manners,
    Said,
    Stranger,
    card_0_3,
    card_1_0,
    card_synapse,
    rude_server,
)

CARD_PATH = "/.well-known/agent-card.json"
OLD_CARD_PATH = "/.well-known/agent.json"


async def add(externals: Externals, url: str) -> ExternalAgent:
    return await externals.add(AddExternal(url=url, alias="other"))


async def test_a_card_at_the_new_path_is_found(stranger: Stranger, externals: Externals) -> None:
    stranger.serves(CARD_PATH, card_1_0(f"{stranger.url}/rpc"))

    agent = await add(externals, stranger.url)

    assert (agent.name, agent.description, agent.protocol) == ("Other Agent", "does things", "a2a-1.0")
    assert await externals.list() == (agent,)


async def test_a_card_at_the_old_path_is_found(stranger: Stranger, externals: Externals) -> None:
    stranger.serves(OLD_CARD_PATH, card_synapse("http://localhost:8100"))

    assert (await add(externals, stranger.url)).protocol == "synapse"
    assert [heard.path for heard in stranger.heard] == [CARD_PATH, OLD_CARD_PATH]


async def test_a_card_is_found_by_its_own_address(stranger: Stranger, externals: Externals) -> None:
    stranger.serves("/cards/a.json", card_0_3(f"{stranger.url}/rpc"))

    assert (await add(externals, f"{stranger.url}/cards/a.json")).protocol == "a2a-0.3"


async def test_a_redirect_on_the_cards_host_is_followed(stranger: Stranger, externals: Externals) -> None:
    stranger.routes[CARD_PATH] = lambda _heard: Said(status=301, headers={"Location": "/card.json"})
    stranger.serves("/card.json", card_1_0(f"{stranger.url}/rpc"))

    assert (await add(externals, stranger.url)).protocol == "a2a-1.0"


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("http://elsewhere.invalid/card.json", "it redirects to http://elsewhere.invalid/card.json"),
        ("http://[", "something that is not an address"),
        ("file:///etc/passwd", "something that is not an address"),
        (CARD_PATH, "it redirects too often"),
    ],
)
async def test_a_redirect_to_another_host_is_not_followed(
    stranger: Stranger, externals: Externals, location: str, said: str
) -> None:
    stranger.routes[CARD_PATH] = lambda _heard: Said(status=302, headers={"Location": location})

    with pytest.raises(ExternalAgentFailed, match=said):
        await add(externals, stranger.url)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            Said(raw=b"<html>hello</html>", headers={"Content-Type": "text/html"}),
            f"{CARD_PATH} is not JSON; {OLD_CARD_PATH} answered 404",
        ),
        (Said({"hello": "world"}), f"{CARD_PATH} is not an agent card; {OLD_CARD_PATH} answered 404"),
        (Said([]), f"{CARD_PATH} is not JSON; "),
        (Said({}, 500), f"{CARD_PATH} answered 500; "),
        (Said({}, 401), "it wants credentials"),
        (Said(raw=b"{", headers={"Content-Length": "10"}), "broke off in the middle of its answer"),
        (Said(card_1_0("ftp://x")), "its card gives the address 'ftp://x'"),
        (Said(card_1_0("x:1", binding="GRPC")), "no interface that Synapse speaks"),
    ],
)
async def test_a_document_that_is_no_card_is_refused(
    stranger: Stranger, externals: Externals, given: Said, said: str
) -> None:
    stranger.routes[CARD_PATH] = lambda _heard: given

    with pytest.raises(ExternalAgentFailed) as caught:
        await add(externals, stranger.url)

    assert str(caught.value).startswith(f"no agent was found at {stranger.url}: ")
    assert said in str(caught.value)
    assert await externals.list() == ()


async def test_an_address_where_nothing_listens_is_unreachable(externals: Externals) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening: no other process can listen there
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        with pytest.raises(ExternalAgentUnreachable, match=f"nothing listens at {url}"):
            await add(externals, url)


async def test_a_server_that_speaks_no_tls_is_unreachable_by_https(stranger: Stranger, externals: Externals) -> None:
    with pytest.raises(ExternalAgentUnreachable, match="does not speak TLS"):
        await add(externals, stranger.url.replace("http:", "https:"))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH_9\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", "broke off in the middle"),
    ],
)
async def test_a_server_of_another_protocol_is_refused(externals: Externals, answer: bytes, said: str) -> None:
    with rude_server(answer) as url, pytest.raises(ExternalAgentFailed, match=said):
        await add(externals, url)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
async def test_a_server_that_never_finishes_its_answer_times_out(answer: bytes) -> None:
    client = A2AClient(discover_seconds=0.2)

    with (
        rude_server(answer, Manners.SAY_NOTHING) as url,
        pytest.raises(ExternalAgentUnreachable, match=r"within 0\.2 seconds"),
    ):
        await client.discover(url)


async def test_a_server_that_answers_byte_by_byte_times_out() -> None:
    client = A2AClient(discover_seconds=0.2)

    with (
        rude_server(b"HTTP/1.1 200 OK\r\nX-Drip: ", Manners.DRIP) as url,
        pytest.raises(ExternalAgentUnreachable, match=r"within 0\.2 seconds"),
    ):
        await client.discover(url)


async def test_an_answer_without_end_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, stranger: Stranger, externals: Externals
) -> None:
    monkeypatch.setattr("synapse.external.requests.LARGEST_ANSWER", 1000)
    stranger.serves(CARD_PATH, {**CARD, "description": "x" * 2000})

    with pytest.raises(ExternalAgentFailed, match="its answer is larger than 1000 bytes"):
        await add(externals, stranger.url)
