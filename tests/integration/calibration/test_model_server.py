"""The scripted model over real connections."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse

import pytest

from synapse.calibration.model_server import Fact, Ledger, ModelServer
from synapse.calibration.scripted_model import SCENES, HoldText, SayText
from synapse.config.process import SystemClock
from tests.unit.calibration.vendors import ANTHROPIC, CHAT, VENDORS, Json, Vendor, events

PATIENCE = 20.0
every_vendor = pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.name)


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(Ledger(SystemClock())) as model:
        yield model


class Client:
    """One request to the model, as a CLI makes it."""

    def __init__(self, model: ModelServer) -> None:
        self.connection = HTTPConnection(model.url.removeprefix("http://"), timeout=PATIENCE)

    def post(self, path: str, body: Json, **headers: str) -> HTTPResponse:
        content = json.dumps(body).encode()
        if headers.get("content_encoding") == "gzip":
            content = gzip.compress(content)
        self.connection.request("POST", path, content, {name.replace("_", "-"): text for name, text in headers.items()})
        return self.connection.getresponse()

    def ask(self, vendor: Vendor, *messages: Json, **headers: str) -> HTTPResponse:
        return self.post(vendor.path, vendor.request(list(messages)), **headers)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self.connection.close()


def events_in(answer: HTTPResponse) -> list[Json]:
    return events([answer.read()])


@every_vendor
def test_the_long_answer_arrives_byte_for_byte_and_is_recorded(model: ModelServer, vendor: Vendor) -> None:
    (act,) = SCENES["long"]
    assert isinstance(act, SayText)

    with Client(model) as client:
        events = events_in(client.ask(vendor, vendor.prompt("calibrate:long:1 please")))

    assert vendor.text_in(events) == act.text
    assert [entry.fact for entry in model.ledger.of("long:1")] == [Fact.ASKED, Fact.SAID]


@every_vendor
def test_a_tool_is_called_and_its_result_ends_the_turn(model: ModelServer, vendor: Vendor) -> None:
    prompt = vendor.prompt("calibrate:approve:1 please")

    with Client(model) as client:
        name, arguments = vendor.call_in(events_in(client.ask(vendor, prompt)))
    with Client(model) as client:
        said = vendor.text_in(events_in(client.ask(vendor, prompt, vendor.result("made"))))

    assert name == "Bash"
    assert "touch" in str(arguments)
    assert said == "The tool has run."
    facts = [entry.fact for entry in model.ledger.of("approve:1")]
    assert facts == [Fact.ASKED, Fact.CALLED, Fact.RESULT, Fact.SAID]


@every_vendor
def test_a_held_answer_goes_on_when_it_is_released(model: ModelServer, vendor: Vendor) -> None:
    (act,) = SCENES["slow"]
    assert isinstance(act, HoldText)

    with Client(model) as client:
        answer = client.ask(vendor, vendor.prompt("calibrate:slow:1 please"))
        assert model.ledger.wait_for("slow:1", Fact.HELD, seconds=PATIENCE) is not None
        model.release("slow:1")
        events = events_in(answer)

    assert vendor.text_in(events) == "".join(act.begin) + act.end


def test_a_cli_that_hangs_up_on_a_held_answer_is_noticed(model: ModelServer) -> None:
    with Client(model) as client:
        answer = client.ask(CHAT, CHAT.prompt("calibrate:slow:1 please"))
        assert answer.fp.readline().startswith(b"data:")
        assert model.ledger.wait_for("slow:1", Fact.HELD, seconds=PATIENCE) is not None
        answer.close()

    assert model.ledger.wait_for("slow:1", Fact.LEFT, seconds=PATIENCE) is not None


@every_vendor
def test_a_limit_comes_with_the_time_to_wait(model: ModelServer, vendor: Vendor) -> None:
    with Client(model) as client:
        answer = client.ask(vendor, vendor.prompt("calibrate:rate-limit:1 please"))
        body = json.loads(answer.read())

    assert answer.status == 429
    assert answer.getheader("retry-after") == "3600"
    assert "too many" in body["error"]["message"]
    assert [entry.text for entry in model.ledger.of("rate-limit:1") if entry.fact is Fact.REFUSED] == ["429"]


def test_a_question_without_a_tool_for_it_is_recorded(model: ModelServer) -> None:
    with Client(model) as client:
        client.ask(ANTHROPIC, ANTHROPIC.prompt("calibrate:question:1 please")).read()

    assert model.ledger.last("question:1", Fact.LACKED) is not None


def test_side_requests_get_harmless_answers_and_count_as_no_turn(model: ModelServer) -> None:
    prompt = ANTHROPIC.prompt("calibrate:long:1 please")
    title = {"model": "m", "messages": [prompt], "stream": False}

    with Client(model) as client:
        whole = json.loads(client.post("/v1/messages", title).read())
    with Client(model) as client:
        streamed = events_in(client.post("/v1/messages", {**title, "stream": True, **ANTHROPIC.structured}))
    with Client(model) as client:
        counted = json.loads(client.post("/v1/messages/count_tokens?beta=true", title).read())
    with Client(model) as client:
        client.connection.request("GET", "/v1/models")
        models = json.loads(client.connection.getresponse().read())

    assert ANTHROPIC.whole_text(whole) == "Calibration"
    assert json.loads(ANTHROPIC.text_in(streamed))["title"] == "Calibration"
    assert counted == {"input_tokens": 10}
    assert models["data"]
    assert model.ledger.entries == []


def test_an_unknown_path_is_not_found(model: ModelServer) -> None:
    for method in ("GET", "POST"):
        with Client(model) as client:
            client.connection.request(method, "/api/event_logging")
            assert client.connection.getresponse().status == 404
    with Client(model) as client:
        client.connection.request("HEAD", "/")
        assert client.connection.getresponse().status == 200


def test_a_compressed_body_is_decompressed(model: ModelServer) -> None:
    with Client(model) as client:
        events = events_in(client.ask(CHAT, CHAT.prompt("calibrate:one-line:1 hi"), content_encoding="gzip"))

    assert CHAT.text_in(events) == "The answer to one line."


def test_the_server_listens_on_loopback_only_until_it_is_closed() -> None:
    with ModelServer(Ledger(SystemClock())) as model:
        host, _, port = model.url.removeprefix("http://").partition(":")
        assert host == "127.0.0.1"

    with socket.socket() as probe:
        assert probe.connect_ex((host, int(port))) != 0
