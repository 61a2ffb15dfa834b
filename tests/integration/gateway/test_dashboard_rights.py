"""What sessions of different rights do at a real gateway, with and without authentication, and when one is revoked."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from synapse.auth.sessions import SessionFile
from synapse.config.process import SystemClock
from tests.conformance.real_gateway import RunningGateway, gateway
from tests.conformance.real_hosts import PATIENCE, scripted_host
from tests.conformance.wire_client import Reply, WireClient
from tests.integration.gateway.signed_in import SignedIn, sign_in
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

SCRIPT = """
[[rule]]
text = "ask*"
steps = [
  { question = "Run it?", detail = "rm -rf build", options = ["allow: Yes", "deny: No"] },
  { answer = "done" },
]

[default]
steps = [{ answer = "{text}" }]
"""
TERMINALS = "/dashboard/terminals"


@pytest.fixture(scope="module", params=["", "--no-auth"], ids=["with keys", "no-auth"])
def running(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RunningGateway]:
    home = tmp_path_factory.mktemp("q")
    script = home / "asker.toml"
    script.write_text(SCRIPT, encoding="utf-8")
    flags = [request.param] if request.param else []
    with scripted_host(home, script, "ada"), gateway(home, "grpc_port = 0", *flags) as started:
        yield started


@pytest.fixture(scope="module")
def owner(running: RunningGateway) -> SignedIn:
    return sign_in(running)


def asked(owner: SignedIn) -> tuple[str, str]:
    """Lets the agent ask for a permission; returns the task and the question."""
    sent = owner.ask("POST", "/dashboard/agents/ada/messages", {"text": "ask me"})
    assert sent.status == 202, sent.body
    task: str = sent.json["task"]["id"]

    def question() -> str:
        shown: dict[str, Any] = owner.ask("GET", f"/dashboard/tasks/{task}").json["task"]["metadata"]
        return str(shown.get("question", {}).get("id", ""))

    return task, until(question, "a question")


def terminals(running: RunningGateway, cookie: str = "", token: str = "") -> ClientConnection:
    """Opens the WebSocket of terminals as the page does."""
    address = f"127.0.0.1:{running.entry.port}"
    return connect(
        f"ws://{address}{TERMINALS}",
        origin=Origin(f"http://{address}"),
        subprotocols=[Subprotocol("synapse.terminals"), *([Subprotocol(f"token.{token}")] if token else [])],
        additional_headers={"Cookie": cookie} if cookie else {},
        open_timeout=PATIENCE,
    )


def test_a_session_decides_as_a_person(owner: SignedIn) -> None:
    task, question = asked(owner)

    answered = owner.ask("POST", f"/dashboard/tasks/{task}/answer", {"question_id": question, "verdict": "allow"})

    assert answered.status == 200, answered.body
    assert answered.json["task"]["metadata"]["answered"]["by"] == "dashboard"


def test_a_session_that_may_only_read_does_nothing_else(running: RunningGateway, owner: SignedIn) -> None:
    reader = sign_in(running, "read")
    task, question = asked(owner)
    answer = {"question_id": question, "verdict": "allow"}

    assert reader.ask("GET", "/dashboard/overview").status == 200
    assert reader.ask("GET", f"/dashboard/tasks/{task}").status == 200
    refused: list[Reply] = [
        reader.ask("POST", "/dashboard/agents/ada/messages", {"text": "hello"}),
        reader.ask("POST", f"/dashboard/tasks/{task}/answer", answer),
        reader.ask("POST", "/dashboard/agents/ada/answer", answer),
        reader.ask("POST", f"/dashboard/tasks/{task}/resolve", {"verdict": "fail"}),
        reader.ask("POST", f"/dashboard/tasks/{task}/cancel"),
    ]

    assert [(reply.status, reply.code) for reply in refused] == [(403, "forbidden")] * len(refused)
    with pytest.raises(InvalidStatus) as closed:
        terminals(running, reader.cookie, reader.token)
    assert closed.value.response.status_code == 403
    assert owner.ask("POST", f"/dashboard/tasks/{task}/cancel").status == 200


def test_a_process_of_the_user_decides_nothing_over_the_network(running: RunningGateway, owner: SignedIn) -> None:
    """Not even at a gateway without authentication: the process may be an agent's."""
    task, question = asked(owner)

    refused = [
        running.ask("POST", f"/dashboard/tasks/{task}/answer", {"question_id": question, "verdict": "allow"}),
        running.ask("POST", "/dashboard/agents/ada/answer", {"question_id": question, "verdict": "allow"}),
        running.ask("POST", f"/dashboard/tasks/{task}/resolve", {"verdict": "delivered"}),
    ]
    with pytest.raises(InvalidStatus) as closed:
        terminals(running)

    assert {reply.status for reply in refused} <= {401, 403}
    assert {reply.code for reply in refused} <= {"credentials_refused", "person_required"}
    assert closed.value.response.status_code in (401, 403)
    assert owner.ask("POST", f"/dashboard/tasks/{task}/cancel").status == 200


def test_open_streams_and_terminals_end_with_their_session(running: RunningGateway, owner: SignedIn) -> None:
    leaving = sign_in(running)
    lines: list[str] = []
    with (
        closing(WireClient(running.entry.port).connection()) as connection,
        terminals(running, leaving.cookie, leaving.token) as socket,
        terminals(running, owner.cookie, owner.token) as stays,
    ):
        headers = {"Host": leaving.origin.removeprefix("http://"), "Cookie": leaving.cookie}
        connection.request("GET", "/dashboard/events", headers={**headers, "X-Synapse-Token": leaving.token})
        response = connection.getresponse()
        assert response.status == 200
        reading = threading.Thread(target=_read_all, args=(response, lines), daemon=True)
        reading.start()
        until(lambda: "event: overview" in lines, "the overview")

        SessionFile(Path(running.home), SystemClock()).revoke(leaving.session["id"])

        reading.join(PATIENCE)
        assert not reading.is_alive()
        assert "event: error" in lines
        assert any('"unauthenticated"' in line for line in lines)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(PATIENCE)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
        assert stays.ping().wait(PATIENCE)
    assert leaving.ask("GET", "/dashboard/overview").code == "credentials_refused"
    assert owner.ask("GET", "/dashboard/overview").status == 200


def _read_all(response: http.client.HTTPResponse, lines: list[str]) -> None:
    while line := response.readline():
        lines.append(line.decode().rstrip("\n"))
