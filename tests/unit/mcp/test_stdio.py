"""The stdio process: cuts lines, runs calls side by side, and ends when its client goes."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from synapse.core.override import override
from synapse.mcp.local import RunningCall
from synapse.mcp.server import Server, Session
from synapse.mcp.stdio import MOST_CALLS, LineDecoder, StdioServer
from synapse.mcp.tools import AGENT_TOOLS, StatusCall, ToolResult
from tests.integration.waiting import until

if TYPE_CHECKING:
    from synapse.mcp.tools import Call

PATIENCE = 10.0


class Client:
    """The other end of a server that runs in a thread."""

    def __init__(self, run: Callable[[Call, RunningCall], ToolResult], ready: Callable[[Session], None]) -> None:
        source, self.input = os.pipe()
        self.output, sink = os.pipe()
        clock = time.monotonic  # noqa: TID251 - real threads are waited for
        offered = Server(AGENT_TOOLS, "", "1")
        self.server = StdioServer(offered, run, ready, clock, source=source, sink=sink)
        self.ends = [source, self.input, self.output, sink]
        self.thread = threading.Thread(target=self.server.serve, daemon=True)
        self.thread.start()
        self._read = b""

    def write(self, *messages: object) -> None:
        for message in messages:
            data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            os.write(self.input, data)

    def read(self) -> dict[str, Any]:
        while b"\n" not in self._read:
            piece = os.read(self.output, 65_536)
            assert piece, "the server closed its output"
            self._read += piece
        line, _, self._read = self._read.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self, end: int) -> None:
        self.ends.remove(end)
        os.close(end)

    def has_ended(self) -> bool:
        self.thread.join(PATIENCE)
        return not self.thread.is_alive()


@contextmanager
def serving(
    run: Callable[[Call, RunningCall], ToolResult], ready: Callable[[Session], None] = lambda _session: None
) -> Generator[Client]:
    client = Client(run, ready)
    try:
        yield client
    finally:
        if client.input in client.ends:
            client.close(client.input)
        assert client.has_ended()
        for end in client.ends:
            os.close(end)


def echo(call: Call, _running: RunningCall) -> ToolResult:
    assert isinstance(call, StatusCall)
    return ToolResult(call.of)


def status(request_id: object, of: str = "x", **more: object) -> dict[str, Any]:
    params = {"name": "status", "arguments": {"of": of}, **more}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def ping(request_id: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": "ping"}


class Waits:
    """A tool that waits until it is left or released."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.released = threading.Event()
        self.ended: list[bool] = []

    def __call__(self, _call: Call, running: RunningCall) -> ToolResult:
        self.begun.release()
        until(lambda: running.is_left or self.released.is_set(), "the end of the call", bound=PATIENCE)
        self.ended.append(running.is_left)
        return ToolResult("ended")


def test_garbage_is_answered_and_the_next_line_is_served() -> None:
    with serving(echo) as client:
        client.write(b"garbage\n", b"\xff\xfe\n", b"\n  \r\n", b"[" * 100_000 + b"\n", b'"\\ud800"\n', ping(1))

        codes = [client.read()["error"]["code"] for _ in range(4)]
        assert codes == [-32700, -32700, -32700, -32600]
        assert client.read() == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_a_lone_surrogate_in_a_line_never_reaches_the_client() -> None:
    with serving(echo) as client:
        client.write(
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"status","arguments":{"of":"a\\ud800"}}}\n'
        )

        assert client.read()["result"]["content"][0]["text"] == "a\ufffd"


def test_a_line_that_is_too_long_is_refused_once_and_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = LineDecoder(most=10)

    found = [line for piece in (b"x" * 8, b"y" * 8, b"z" * 8, b"\nshort\n") for line in decoder.receive(piece)]

    assert found == [None, b"short"]


def test_a_megabyte_in_one_line_passes() -> None:
    text = "é" * 500_000
    with serving(echo) as client:
        writer = threading.Thread(target=client.write, args=({**ping(text)},))
        writer.start()

        assert client.read()["id"] == text
        writer.join()


def test_calls_run_side_by_side() -> None:
    waits = Waits()

    def run(call: Call, running: RunningCall) -> ToolResult:
        assert isinstance(call, StatusCall)
        return waits(call, running) if call.of == "slow" else ToolResult("quick")

    with serving(run) as client:
        client.write(status(1, "slow"), status(2, "quick"))
        assert client.read()["id"] == 2
        waits.released.set()
        assert client.read()["id"] == 1


def test_a_canceled_call_is_left_and_not_answered() -> None:
    waits = Waits()
    with serving(waits) as client:
        client.write(status(1))
        assert waits.begun.acquire(timeout=PATIENCE)

        client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        until(lambda: waits.ended == [True], "the call to be left", bound=PATIENCE)
        client.write(ping(2))

        assert client.read()["id"] == 2


class Answered(Waits):
    """A tool that has an answer, which must reach its agent one way or the other."""

    def __init__(self) -> None:
        super().__init__()
        self.handed_over: list[str] = []

    @override
    def __call__(self, call: Call, running: RunningCall) -> ToolResult:
        running.hand_over = lambda: self.handed_over.append("the answer")
        return super().__call__(call, running)


def test_an_answer_that_the_client_reads_is_not_handed_over() -> None:
    answered = Answered()
    answered.released.set()
    with serving(answered) as client:
        client.write(status(1))
        assert client.read()["id"] == 1
    assert answered.handed_over == []


def test_an_answer_to_a_canceled_call_is_handed_over() -> None:
    answered = Answered()
    with serving(answered) as client:
        client.write(status(1))
        assert answered.begun.acquire(timeout=PATIENCE)
        client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}, ping(2))
        assert client.read()["id"] == 2
    assert answered.handed_over == ["the answer"]


def test_an_answer_is_handed_over_and_not_written_when_the_client_has_closed_its_end() -> None:
    answered = Answered()
    with serving(answered) as client:
        client.write(status(1))
        assert answered.begun.acquire(timeout=PATIENCE)
        client.close(client.input)
        assert client.has_ended()
        os.set_blocking(client.output, False)
        with pytest.raises(BlockingIOError):
            os.read(client.output, 1)
    assert answered.handed_over == ["the answer"]


def test_an_answer_that_cannot_be_written_is_handed_over() -> None:
    answered = Answered()
    gone = threading.Event()

    def run(_call: Call, running: RunningCall) -> ToolResult:
        # As if the answer came before the client went: nothing has left this call.
        running.hand_over = lambda: answered.handed_over.append("the answer")
        answered.begun.release()
        gone.wait(PATIENCE)
        running.is_left = False
        return ToolResult("the answer")

    with serving(run) as client:
        client.write(status(1))
        assert answered.begun.acquire(timeout=PATIENCE)
        client.close(client.output)
        gone.set()
        assert client.has_ended()
    assert answered.handed_over == ["the answer"]


def test_other_cancellations_are_ignored() -> None:
    with serving(echo) as client:
        client.write(status(1))
        assert client.read()["id"] == 1
        ids: list[object] = [1, "1", 99, None, [1]]
        for request_id in ids:
            client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})
        client.write(status(1))

        assert client.read()["result"]["isError"] is False


@pytest.mark.parametrize("stream", ["input", "output"])
def test_a_client_that_goes_ends_the_server_and_its_waits(stream: str) -> None:
    waits = Waits()
    with serving(waits) as client:
        client.write(status(1), status(2))
        for _ in range(2):
            assert waits.begun.acquire(timeout=PATIENCE)

        client.close(client.input if stream == "input" else client.output)

        assert client.has_ended()
        assert waits.ended == [True, True]


def test_a_bug_in_a_tool_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_call: Call, _running: RunningCall) -> ToolResult:
        raise RuntimeError("a bug")

    with serving(fail) as client:
        client.write(status(1))

        assert client.read()["result"]["isError"] is True
    assert "a bug" in capsys.readouterr().err


def test_more_calls_than_threads_are_refused() -> None:
    waits = Waits()
    with serving(waits) as client:
        client.write(*(status(number) for number in range(MOST_CALLS)))
        for _ in range(MOST_CALLS):
            assert waits.begun.acquire(timeout=PATIENCE)

        client.write(status("one more"))

        refused = client.read()
        assert (refused["id"], refused["result"]["isError"]) == ("one more", True)
        waits.released.set()
        assert sorted(client.read()["id"] for _ in range(MOST_CALLS)) == list(range(MOST_CALLS))


def test_a_batch_is_answered_in_one_line() -> None:
    with serving(echo) as client:
        client.write([ping(1), status(2), status(3)])

        reply: Any = client.read()
        assert sorted(one["id"] for one in reply) == [1, 2, 3]


def test_progress_has_the_token_of_its_call() -> None:
    def run(_call: Call, running: RunningCall) -> ToolResult:
        running.report("working")
        running.report("still working")
        return ToolResult("done")

    with serving(run) as client:
        client.write(status(1, _meta={"progressToken": 7}))

        notes = [client.read()["params"] for _ in range(2)]
        assert [(note["progressToken"], note["progress"]) for note in notes] == [(7, 1), (7, 2)]
        assert client.read()["id"] == 1


def test_the_host_is_told_after_the_tools_were_listed() -> None:
    told: list[str] = []
    with serving(echo, lambda session: told.append(session.protocol)) as client:
        client.write(ping(1), {"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        client.read()
        client.read()

        until(lambda: told, "the host to be told", bound=PATIENCE)
    assert told == ["2025-03-26"]


def test_a_host_that_hangs_is_told_by_one_thread_only() -> None:
    asked, answers = threading.Semaphore(0), threading.Event()

    def hang(_session: Session) -> None:
        asked.release()
        answers.wait(PATIENCE)

    with serving(echo, hang) as client:
        client.write(*({"jsonrpc": "2.0", "id": number, "method": "tools/list"} for number in range(9)), ping("last"))
        while client.read()["id"] != "last":
            pass
        assert asked.acquire(timeout=PATIENCE)
        assert not asked.acquire(blocking=False)
        answers.set()
