"""The enrolment of machines: what the holder of an invitation sends ends nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nats import errors as nats_errors

from synapse.config.process import SystemClock
from synapse.core.errors import InvitationRefused, LinkDown
from synapse.core.waiting import pause
from synapse.fleet.names import enrol_subject
from synapse.link import enrolment
from synapse.link.enrolment import TRIES, Enrolled, EnrolmentService, Invitation, enrol, wait_until_accepted
from synapse.link.machine_keys import new_seed
from synapse.link.server import FleetServer
from tests.fakes.memory_engine import MemoryEngine


@pytest.mark.parametrize("body", [b"", b"{}", b"[" * 100_000, b'{"key": ["x"]}', b"\xff"])
async def test_a_request_that_is_none_is_refused(tmp_path: Path, body: bytes) -> None:
    engine = MemoryEngine()
    service = EnrolmentService(engine.bus("server"), FleetServer(tmp_path, tmp_path))
    serving = asyncio.create_task(service.serve())
    try:
        async with asyncio.timeout(20):
            while not engine.readers:
                await pause(0.01)
            answer = json.loads(await engine.bus("guest").request(enrol_subject("K"), body, 10))
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    assert answer["error"]["code"] == "invalid_request"


def invitation(expires_in: float = 600.0) -> Invitation:
    return Invitation(
        fleet="home",
        machine="box2",
        servers=("nats://127.0.0.1:4222",),
        pin=b"",
        seed=new_seed(),
        is_gateway=False,
        expires_at=SystemClock().now().timestamp() + expires_in,
    )


ENROLLED = Enrolled(fleet="home", machine="box2", servers=(), is_gateway=False, ca="", server_time=0.0)
REFUSAL = nats_errors.Error("nats: 'Authorization Violation'")


class Server:
    """Answers tries to join with what the test says, one after the other; the last one again and again."""

    def __init__(self, *answers: Exception | Enrolled) -> None:
        self.answers = list(answers)
        self.tries = 0

    async def enrol(self, _server: str, _invitation: Invitation, _key: str) -> Enrolled:
        self.tries += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize("passing", [REFUSAL, ConnectionResetError(), nats_errors.UnexpectedEOF()])
async def test_a_server_that_reads_its_users_again_does_not_end_a_join(
    passing: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(passing, passing, ENROLLED)
    monkeypatch.setattr(enrolment, "_enrol_at", server.enrol)
    monkeypatch.setattr(enrolment, "AGAIN_SECONDS", 0.0)

    assert await enrol(invitation(), "UKEY") == ENROLLED


async def test_an_invitation_that_stays_refused_is_said_to_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(REFUSAL)
    monkeypatch.setattr(enrolment, "_enrol_at", server.enrol)
    monkeypatch.setattr(enrolment, "AGAIN_SECONDS", 0.0)

    with pytest.raises(InvitationRefused, match="used, withdrawn or replaced"):
        await enrol(invitation(), "UKEY")
    assert server.tries == TRIES


class Swallowing:
    """A connection that hears no answer, and loses the first cancellation as nats-py does."""

    def __init__(self) -> None:
        self.lost = 0

    @asynccontextmanager
    async def connect(self, _server: str, _seed: str, _pin: bytes) -> AsyncGenerator[None]:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            if self.lost:
                raise
            self.lost += 1
        if self.lost:
            raise REFUSAL
        yield


async def test_a_cancellation_that_nats_py_loses_does_not_make_a_command_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    swallowing = Swallowing()
    monkeypatch.setattr(enrolment, "_connected", swallowing.connect)
    waiting = asyncio.create_task(wait_until_accepted("nats://127.0.0.1:4222", new_seed(), b"", 0.01))

    done, _ = await asyncio.wait({waiting}, timeout=20)

    waiting.cancel()
    assert done, "it hangs"
    assert swallowing.lost
    with pytest.raises(LinkDown, match="has not read its new configuration"):
        await waiting


async def test_an_expired_invitation_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(REFUSAL)
    monkeypatch.setattr(enrolment, "_enrol_at", server.enrol)

    with pytest.raises(InvitationRefused, match="it has expired"):
        await enrol(invitation(-1.0), "UKEY")
    assert server.tries == 1
