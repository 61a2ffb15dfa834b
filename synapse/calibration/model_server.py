"""The scripted model as a server on loopback: it speaks four vendors' APIs and writes down what was true.

A thread for each connection and a connection for each request: nothing is shared but the ledger, so an answer that is
held back holds nobody else.

The truth: what the scripted model was asked and what it did, with the time of each.
"""

from __future__ import annotations

import gzip
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, assert_never, cast

from synapse.calibration.scripted_model import (
    SCENES,
    Act,
    Body,
    CallTool,
    Hold,
    ModelRequest,
    Refuse,
    Say,
    Scene,
    act_for,
    call_for,
    table,
)
from synapse.calibration.vendor_apis import Anthropic, Chat, Gemini, Responses, Wire
from synapse.core.override import override
from synapse.core.types import Clock

_WIRES: Final[tuple[tuple[str, Wire], ...]] = (
    ("/messages", Anthropic()),
    ("/responses", Responses()),
    ("/chat/completions", Chat()),
    (":generateContent", Gemini()),
    (":streamGenerateContent", Gemini()),
)
_COUNTS: Final = {"/count_tokens": {"input_tokens": 10}, ":countTokens": {"totalTokens": 10}}
_MODELS: Final = {"object": "list", "data": [{"id": "scripted", "object": "model"}], "models": list[str]()}
# Whoever routes or judges by JSON gets something that fits; who wants a title gets one.
_SIDE_TEXT: Final = "Calibration"
_SIDE_JSON: Final = json.dumps(
    {
        "title": _SIDE_TEXT,
        "isNewTopic": False,
        "reasoning": "scripted",
        "next_speaker": "user",
        "model_choice": "flash",
        "complexity_reasoning": "scripted",
        "complexity_score": 1,
    }
)
_LOOK_SECONDS: Final = 0.02
_REQUEST_SECONDS: Final = 30


class ModelServer:
    """Serves until it is closed; a context manager."""

    def __init__(self, ledger: Ledger, scenes: Mapping[str, Scene] = SCENES) -> None:
        self.ledger = ledger
        self.scenes = scenes
        self._released: set[str] = set()
        self._numbers = iter(range(1, 1_000_000_000))
        self._numbering = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Connection)
        self._server.model = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def release(self, turn: str) -> None:
        """Let an answer that is held back go on."""
        self._released.add(turn)

    def is_released(self, turn: str) -> bool:
        return turn in self._released

    def next_number(self) -> int:
        with self._numbering:
            return next(self._numbers)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> ModelServer:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    model: ModelServer


class _HungUp(Exception):
    """The CLI closed the connection."""


class _Connection(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    timeout = _REQUEST_SECONDS

    @property
    def _model(self) -> ModelServer:
        return cast("_Server", self.server).model

    def do_HEAD(self) -> None:
        self._answer({})

    def do_GET(self) -> None:
        if "models" in self.path:
            self._answer(_MODELS)
        else:
            self._answer({"error": {"message": "there is nothing here"}}, 404)

    def do_POST(self) -> None:
        body, path = self._body(), self.path.partition("?")[0]
        count = next((count for ending, count in _COUNTS.items() if path.endswith(ending)), None)
        wire = next((wire for ending, wire in _WIRES if path.endswith(ending)), None)
        if count is not None or wire is None:
            self._answer(count or {"error": {"message": "there is nothing here"}}, 200 if count else 404)
            return
        asked = wire.read(body, path)
        scene, number = asked.marker
        if scene:
            self._play(wire, asked, scene, f"{scene}:{number}")
        else:
            self._answer_side_request(wire, asked)

    @override
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the parent has it
        """Nothing: the ledger tells it better, and stderr is for people."""

    def _play(self, wire: Wire, asked: ModelRequest, scene: str, turn: str) -> None:
        ledger = self._model.ledger
        if asked.results:
            ledger.note(turn, Fact.RESULT, asked.results[-1])
        else:
            ledger.note(turn, Fact.ASKED, asked.prompt)
        try:
            self._do(act_for(self._model.scenes, scene, len(asked.results)), wire, asked, turn)
        except (_HungUp, ConnectionError):
            ledger.note(turn, Fact.LEFT)
            self.close_connection = True

    def _do(self, act: Act, wire: Wire, asked: ModelRequest, turn: str) -> None:
        ledger, number = self._model.ledger, self._model.next_number()
        match act:
            case Say():
                frames = wire.say(asked, iter(act.pieces), number)
                self._stream(frames, turn, Fact.SAID, act.text)
            case Hold():
                text = "".join(act.begin) + act.end
                self._stream(wire.say(asked, self._held(act, turn), number), turn, Fact.SAID, text)
            case CallTool():
                call = call_for(act, asked)
                if call is None:
                    ledger.note(turn, Fact.LACKED, " ".join(sorted(asked.tools)))
                    self._stream(wire.say(asked, iter(["no such tool"]), number), turn, Fact.SAID, "no such tool")
                else:
                    self._stream(wire.call(asked, call, number), turn, Fact.CALLED, call.name)
            case Refuse():
                ledger.note(turn, Fact.REFUSED, str(act.status))
                headers = {"retry-after": str(act.retry_after)} if act.retry_after else {}
                self._answer(wire.refuse(act), act.status, headers)
            case _:
                assert_never(act)

    def _held(self, act: Hold, turn: str) -> Iterator[str]:
        yield from act.begin
        self._model.ledger.note(turn, Fact.HELD)
        while not self._model.is_released(turn):
            readable, _, _ = select.select([self.connection], [], [], _LOOK_SECONDS)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise _HungUp
        yield act.end

    def _answer_side_request(self, wire: Wire, asked: ModelRequest) -> None:
        text = _SIDE_JSON if asked.structured else _SIDE_TEXT
        number = self._model.next_number()
        if not asked.streams:
            self._answer(wire.whole(asked, text, number))
            return
        self._begin_stream()
        for frame in wire.say(asked, iter([text]), number):
            self.wfile.write(frame)

    def _stream(self, frames: Iterator[bytes], turn: str, fact: Fact, text: str) -> None:
        """Send the events; what they amount to is true just before the last one goes out."""
        self._begin_stream()
        waiting = b""
        for frame in frames:
            self.wfile.write(waiting)
            waiting = frame
        self._model.ledger.note(turn, fact, text)
        self.wfile.write(waiting)

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def _answer(self, body: Body, status: int = 200, headers: dict[str, str] | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        # A connection that stays open would keep its thread.
        self.send_header("connection", "close")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = True

    def _body(self) -> Body:
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("content-encoding") == "gzip":
            content = gzip.decompress(content)
        try:
            value: object = json.loads(content or b"{}")
        except ValueError:
            return {}
        return table(value)


class Fact(StrEnum):
    """What happened at the model."""

    ASKED = "asked"
    """A request of the turn came; the text is the prompt."""
    RESULT = "result"
    """A request came that brings what a tool answered; the text is that."""
    SAID = "said"
    """The last byte of a text is going out; the text is all of it."""
    CALLED = "called"
    """The last byte of a tool call is going out; the text is the tool's name."""
    LACKED = "lacked"
    """The CLI offers no tool for what the scene wants."""
    HELD = "held"
    """The beginning of an answer is out, and the rest is held back."""
    LEFT = "left"
    """The CLI hung up in the middle of an answer."""
    REFUSED = "refused"
    """An error is going out; the text is its status."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One fact of one turn. The time is the wall clock's: the one that two processes share."""

    at: datetime
    turn: str
    fact: Fact
    text: str


class Ledger:
    """All facts, in their order; written by the server's threads, read by whoever compares."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._entries: list[Entry] = []

    def note(self, turn: str, fact: Fact, text: str = "") -> None:
        with self._changed:
            self._entries.append(Entry(self._clock.now(), turn, fact, text))
            self._changed.notify_all()

    def of(self, turn: str) -> list[Entry]:
        """The facts of one turn."""
        with self._changed:
            return [entry for entry in self._entries if entry.turn == turn]

    def last(self, turn: str, *facts: Fact) -> Entry | None:
        """The newest of these facts of a turn."""
        return next((entry for entry in reversed(self.of(turn)) if entry.fact in facts), None)

    def first(self, turn: str, fact: Fact) -> Entry | None:
        """The oldest fact of this kind of a turn."""
        return next((entry for entry in self.of(turn) if entry.fact is fact), None)

    def wait_for(self, turn: str, *facts: Fact, seconds: float) -> Entry | None:
        """The newest of these facts, as soon as there is one; None when none came in time."""
        self._wait(lambda: any(entry.turn == turn and entry.fact in facts for entry in self._entries), seconds)
        return self.last(turn, *facts)

    @property
    def entries(self) -> list[Entry]:
        with self._changed:
            return list(self._entries)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(condition, seconds)
