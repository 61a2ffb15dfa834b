"""Serves the scripted model on loopback in four vendors' APIs, and records what was asked and answered, and when.

Each request has its own connection and thread, which share only the ledger: an answer that is held blocks no other.
"""

from __future__ import annotations

import gzip
import json
import select
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, assert_never, cast

from synapse.calibration.scripted_model import (
    SCENES,
    Act,
    Body,
    CallMcpTool,
    CallTool,
    HoldText,
    ModelRequest,
    Refuse,
    SayText,
    Scene,
    act_for,
    call_for,
    table,
)
from synapse.calibration.vendor_apis import Anthropic, Chat, Gemini, Responses, VendorApi
from synapse.core.override import override
from synapse.core.types import Clock
from synapse.core.usage import NO_TOKENS, TokenCounts

_APIS: Final[tuple[tuple[str, VendorApi], ...]] = (
    ("/messages", Anthropic()),
    ("/responses", Responses()),
    ("/chat/completions", Chat()),
    (":generateContent", Gemini()),
    (":streamGenerateContent", Gemini()),
)
_COUNTS: Final = {"/count_tokens": {"input_tokens": 10}, ":countTokens": {"totalTokens": 10}}
_MODELS: Final = {"object": "list", "data": [{"id": "scripted", "object": "model"}], "models": list[str]()}
# Answers to side requests: JSON with the keys that CLIs ask for, or a title.
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
_POLL_SECONDS: Final = 0.02
_REQUEST_SECONDS: Final = 30


class ModelServer:
    """Serves until it is closed; a context manager."""

    def __init__(self, ledger: Ledger, scenes: Mapping[str, Scene] = SCENES) -> None:
        self.ledger = ledger
        self.scenes = scenes
        self.requests: list[Body] = []
        """The requests of all turns, oldest first: everything that the CLI tells its model."""
        self._usage: dict[str, TokenCounts] = {}
        self._released: set[str] = set()
        self._numbers = iter(range(1, 1_000_000_000))
        self._numbering = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Connection)
        self._server.model = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the server, without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def release(self, turn: str) -> None:
        """Releases an answer that is held."""
        self._released.add(turn)

    def is_released(self, turn: str) -> bool:
        return turn in self._released

    def next_number(self) -> int:
        with self._numbering:
            return next(self._numbers)

    def usage_of(self, turn: str) -> TokenCounts:
        """Returns the tokens that the whole answers of a turn told."""
        return self._usage.get(turn, NO_TOKENS)

    def count(self, turn: str, tokens: TokenCounts) -> None:
        """Counts an answer that is about to be whole."""
        with self._numbering:
            self._usage[turn] = self.usage_of(turn) + tokens

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


class _Disconnected(Exception):
    """The CLI closed the connection."""


class _Connection(BaseHTTPRequestHandler):
    """Handles one request."""

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
            self._answer({"error": {"message": "not found"}}, 404)

    def do_POST(self) -> None:
        body, path = self._body(), self.path.partition("?")[0]
        count = next((count for ending, count in _COUNTS.items() if path.endswith(ending)), None)
        api = next((api for ending, api in _APIS if path.endswith(ending)), None)
        if count is not None or api is None:
            self._answer(count or {"error": {"message": "not found"}}, 200 if count else 404)
            return
        request = api.read(body, path)
        scene, number = request.marker
        if scene:
            self._model.requests.append(body)
            self._play(api, request, scene, f"{scene}:{number}")
        else:
            self._answer_side_request(api, request)

    @override
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the parent has it
        """Logs nothing: the ledger has it, and stderr is for people."""

    def _play(self, api: VendorApi, request: ModelRequest, scene: str, turn: str) -> None:
        ledger = self._model.ledger
        if request.results:
            ledger.note(turn, Fact.RESULT, request.results[-1])
        else:
            ledger.note(turn, Fact.ASKED, request.prompt)
        try:
            self._do(act_for(self._model.scenes, scene, len(request.results)), api, request, turn)
        except (_Disconnected, ConnectionError):
            ledger.note(turn, Fact.LEFT)
            self.close_connection = True

    def _do(self, act: Act, api: VendorApi, request: ModelRequest, turn: str) -> None:
        ledger, number = self._model.ledger, self._model.next_number()
        match act:
            case SayText():
                frames = api.say(request, iter(act.pieces), number)
                self._stream(frames, turn, Fact.SAID, act.text, api.usage(number))
            case HoldText():
                text = "".join(act.begin) + act.end
                frames = api.say(request, self._held(act, turn), number)
                self._stream(frames, turn, Fact.SAID, text, api.usage(number))
            case CallTool() | CallMcpTool():
                call = call_for(act, request)
                if call is None:
                    ledger.note(turn, Fact.LACKED, " ".join(sorted(request.tools)))
                    frames = api.say(request, iter(["no such tool"]), number)
                    self._stream(frames, turn, Fact.SAID, "no such tool", api.usage(number))
                else:
                    self._stream(api.call(request, call, number), turn, Fact.CALLED, call.name, api.usage(number))
            case Refuse():
                ledger.note(turn, Fact.REFUSED, str(act.status))
                headers = {"retry-after": str(act.retry_after)} if act.retry_after else {}
                self._answer(api.refuse(act), act.status, headers)
            case _:
                assert_never(act)

    def _held(self, act: HoldText, turn: str) -> Iterator[str]:
        yield from act.begin
        self._model.ledger.note(turn, Fact.HELD)
        while not self._model.is_released(turn):
            readable, _, _ = select.select([self.connection], [], [], _POLL_SECONDS)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                raise _Disconnected
        yield act.end

    def _answer_side_request(self, api: VendorApi, request: ModelRequest) -> None:
        text = _SIDE_JSON if request.structured else _SIDE_TEXT
        number = self._model.next_number()
        if not request.streams:
            self._answer(api.whole(request, text, number))
            return
        self._begin_stream()
        for frame in api.say(request, iter([text]), number):
            self.wfile.write(frame)

    def _stream(self, frames: Iterator[bytes], turn: str, fact: Fact, text: str, tokens: TokenCounts) -> None:
        """Sends the events; records the fact, and what they cost, just before it sends the last one."""
        self._begin_stream()
        pending = b""
        for frame in frames:
            self.wfile.write(pending)
            pending = frame
        self._model.count(turn, tokens)
        self._model.ledger.note(turn, fact, text)
        self.wfile.write(pending)

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
        # An open connection would keep its thread.
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
    """A request of the turn arrived; the text is the prompt."""
    RESULT = "result"
    """A request with a tool result arrived; the text is the result."""
    SAID = "said"
    """The last byte of a text is about to be sent; the text is all of it."""
    CALLED = "called"
    """The last byte of a tool call is about to be sent; the text is the tool's name."""
    LACKED = "lacked"
    """The CLI offers no tool for the scene."""
    HELD = "held"
    """The beginning of an answer is sent, and the rest is held."""
    LEFT = "left"
    """The CLI disconnected during an answer."""
    REFUSED = "refused"
    """An error is about to be sent; the text is its status."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One fact of one turn. `at` is wall-clock time, which two processes share."""

    at: datetime
    turn: str
    fact: Fact
    text: str


class Ledger:
    """All facts in their order; the server's threads write it, the trial reads it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._entries: list[LedgerEntry] = []

    def note(self, turn: str, fact: Fact, text: str = "") -> None:
        with self._changed:
            self._entries.append(LedgerEntry(self._clock.now(), turn, fact, text))
            self._changed.notify_all()

    def of(self, turn: str) -> list[LedgerEntry]:
        """Returns the facts of one turn."""
        with self._changed:
            return [entry for entry in self._entries if entry.turn == turn]

    def last(self, turn: str, *facts: Fact) -> LedgerEntry | None:
        """Returns the newest of these facts of a turn."""
        return next((entry for entry in reversed(self.of(turn)) if entry.fact in facts), None)

    def first(self, turn: str, fact: Fact) -> LedgerEntry | None:
        """Returns the oldest fact of this kind of a turn."""
        return next((entry for entry in self.of(turn) if entry.fact is fact), None)

    def wait_for(self, turn: str, *facts: Fact, seconds: float) -> LedgerEntry | None:
        """Waits for one of these facts and returns the newest; None if none came in time."""
        with self._changed:
            self._changed.wait_for(
                lambda: any(entry.turn == turn and entry.fact in facts for entry in self._entries), seconds
            )
        return self.last(turn, *facts)

    @property
    def entries(self) -> list[LedgerEntry]:
        with self._changed:
            return list(self._entries)
