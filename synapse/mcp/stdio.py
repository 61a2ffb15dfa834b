"""The process of `synapse mcp`: reads messages from standard input, one per line, and writes the replies.

Calls run side by side, each in its own thread, because a model may ask two agents at once. The process ends when its
client closes either stream: every wait is left then, and the answers arrive as messages.
"""

import _thread
import os
import sys

from synapse.core.json_text import decode, encode
from synapse.mcp.local import RunningCall
from synapse.mcp.server import INVALID_REQUEST, MOST_MESSAGE_BYTES, PARSE_ERROR, Session, refuse
from synapse.mcp.tools import ToolResult, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from synapse.mcp.server import Exchange, Server, ToolCall
    from synapse.mcp.tools import Call

    RunCall = Callable[[Call, RunningCall], ToolResult]
    Ready = Callable[[Session], None]

READ_SIZE = 65_536
MOST_CALLS = 64
"""At once; each has a thread and perhaps a connection."""
LEAVE_SECONDS = 5.0
"""How long all calls together may take to leave. Their hosts notice it in any case when the process ends."""


class LineDecoder:
    """Cuts bytes into lines, however they arrive; None stands for a line that is too long."""

    def __init__(self, most: int = MOST_MESSAGE_BYTES) -> None:
        self._most = most
        self._rest = bytearray()
        self._is_skipping = False

    def receive(self, data: bytes) -> "Iterator[bytes | None]":
        """Yields the lines that are complete, without empty ones; the last line needs its end too."""
        *ended, begun = data.split(b"\n")
        for piece in ended:
            if self._add(piece):
                yield None
            whole = bytes(self._rest)
            if not self._is_skipping and whole.strip():
                yield whole
            self._is_skipping = False
            self._rest.clear()
        if self._add(begun):
            yield None

    def _add(self, piece: bytes) -> bool:
        """Adds a piece of a line; returns whether it makes the line too long."""
        if self._is_skipping:
            return False
        self._rest += piece
        if len(self._rest) <= self._most:
            return False
        self._is_skipping = True
        self._rest.clear()
        return True


class _Running(RunningCall):
    """A call with its thread: `finished` is locked until the call has ended."""

    __slots__ = ("call", "finished", "is_canceled")

    def __init__(self, call: "ToolCall", report: "Callable[[str], None]") -> None:
        super().__init__(report)
        self.call = call
        self.is_canceled = False
        self.finished = _thread.allocate_lock()
        self.finished.acquire()


class StdioServer:
    """Serves one client over two file descriptors."""

    def __init__(
        self,
        server: "Server",
        run: "RunCall",
        ready: "Ready",
        monotonic: "Callable[[], float]",
        *,
        source: int = 0,
        sink: int = 1,
    ) -> None:
        """Runs calls by `run`; calls `ready`, in a thread, each time after the tools were listed."""
        self._server = server
        self._run_call = run
        self._ready = ready
        self._monotonic = monotonic
        self._source = source
        self._sink = sink
        self._session = Session()
        self._lines = LineDecoder()
        self._running: list[_Running] = []
        self._is_telling = False
        """Whether `ready` runs. Not twice at once: a host that hangs would collect threads."""
        # For `_running` and the exchanges. Not held while writing: a client that does not read delays no cancellation.
        self._lock = _thread.allocate_lock()
        self._writing = _thread.allocate_lock()

    def serve(self) -> None:
        """Serves until the client closes a stream, then leaves all waits."""
        from select import POLLERR, POLLHUP, POLLIN, POLLNVAL, poll

        events = poll()
        events.register(self._source, POLLIN)
        # A wait may write nothing for long, and must still notice that nobody reads its answer.
        events.register(self._sink, 0)
        while True:
            ready = dict(events.poll())
            if ready.get(self._sink, 0) & (POLLERR | POLLHUP | POLLNVAL):
                break
            data = self._read()
            if not data:
                break
            for line in self._lines.receive(data):
                self._receive(line)
        self._leave_all()

    def _read(self) -> bytes:
        try:
            return os.read(self._source, READ_SIZE)
        except OSError:
            return b""  # as a terminal that was closed

    def _receive(self, line: "bytes | None") -> None:
        if line is None:
            self._write(refuse(INVALID_REQUEST, f"a message may have {MOST_MESSAGE_BYTES} bytes").reply)
            return
        try:
            message = decode(line.decode("utf-8"))
        except ValueError:
            self._write(refuse(PARSE_ERROR, "the line is not JSON in UTF-8").reply)
            return
        exchange = self._server.receive(message, self._session)
        for request_id in exchange.canceled:
            self._cancel(request_id)
        calls = list(exchange.calls)
        if not calls:
            self._write(exchange.reply)
        for call in calls:
            self._start(call, exchange)
        if exchange.listed and not self._is_telling:
            self._is_telling = True
            _thread.start_new_thread(self._tell_ready, ())

    def _tell_ready(self) -> None:
        try:
            self._ready(self._session)
        finally:
            self._is_telling = False

    def _start(self, call: "ToolCall", exchange: "Exchange") -> None:
        # The thread that loads it first is the main one for it, and for uvloop, which installs signal handlers there.
        __import__("threading")

        steps = [0]

        def report(message: str) -> None:
            steps[0] += 1
            note = call.progress(steps[0], message)
            if note is not None and not running.is_left:
                self._write(note)

        running = _Running(call, report)
        with self._lock:
            is_full = len(self._running) >= MOST_CALLS
            if not is_full:
                self._running.append(running)
        if is_full:
            result = ToolResult(f"{MOST_CALLS} calls are running; wait until one has ended.", is_error=True)
            self._finish(running, exchange, result)
            return
        _thread.start_new_thread(self._run, (running, exchange))

    def _run(self, running: _Running, exchange: "Exchange") -> None:
        result = ToolResult("The tool failed; the error is in the log of this tool server.", is_error=True)
        try:
            result = self._run_call(running.call.call, running)
        except _expected_errors() as error:
            result = _failure(error)
        except Exception as bug:  # noqa: BLE001 - a client that gets no answer waits for ever
            sys.excepthook(type(bug), bug, bug.__traceback__)
        finally:
            self._finish(running, exchange, result)

    def _finish(self, running: _Running, exchange: "Exchange", result: ToolResult) -> None:
        with self._lock:
            # An answer goes to the client or is handed over, never both.
            is_unread = running.is_canceled or (running.is_left and running.hand_over is not None)
            exchange.finish(running.call, None if is_unread else result)
            reply = exchange.reply if exchange.is_complete else None
        is_written = self._write(reply)
        if running.hand_over is not None and (is_unread or not is_written):
            running.hand_over()
        with self._lock:
            # After the reply, so that a process that ends has written it.
            self._running = [one for one in self._running if one is not running]
        running.finished.release()

    def _cancel(self, request_id: object) -> None:
        """Leaves a running call; ignores the id of any other, as some clients cancel calls that were answered."""
        with self._lock:
            canceled = [one for one in self._running if one.call.id == request_id]
            for running in canceled:
                running.is_canceled = True
        for running in canceled:
            running.leave()

    def _leave_all(self) -> None:
        with self._lock:
            left = list(self._running)
        for running in left:
            running.leave()
        end = self._monotonic() + LEAVE_SECONDS
        for running in left:
            running.finished.acquire(True, max(0.0, end - self._monotonic()))

    def _write(self, message: "dict[str, Any] | list[dict[str, Any]] | None") -> bool:
        """Writes a message, if there is one. Returns False if nobody reads: the main thread notices that by itself."""
        if message is None:
            return True
        rest = memoryview(encode(message).encode("ascii") + b"\n")
        with self._writing:
            try:
                while rest:
                    rest = rest[os.write(self._sink, rest) :]
            except OSError:
                return False
        return True


def _expected_errors() -> "tuple[type[Exception], ...]":
    """Returns the errors that a call may raise. Called only after one: the error classes are slow to load."""
    from synapse.client.files import NotReadable
    from synapse.core.errors import SynapseError

    return SynapseError, NotReadable, OSError


def _failure(error: Exception) -> ToolResult:
    from synapse.core.errors import SynapseError

    return refusal(error) if isinstance(error, SynapseError) else ToolResult(str(error), is_error=True)
