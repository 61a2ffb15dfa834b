"""A client of Codex's app-server beside its TUI: takes its events, answers its questions, sends messages.

A message goes through the server's own queue, because `turn/start` adds it to a turn that has just begun:

    add ──► gone from the queue: a turn of its own has begun
        └─► still there ──► start it (the queue rests after Esc) ──► its turn has begun
                                └─► refused: another turn runs ──► delete it ──► deleted: not taken
                                                                      └─► gone: its turn has begun

Nothing stays in that queue: Codex keeps it on disk and would run it whenever the conversation is resumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from synapse.core.driver import SendOutcome
from synapse.core.question import Choice
from synapse.core.text import sanitise
from synapse.core.usage import UsageReport
from synapse.core.waiting import pause
from synapse.drivers.pty.adapters.adapter import Busy, NotTaken
from synapse.drivers.pty.adapters.transcript import UsageTail
from synapse.net.jsonrpc import RpcClient, RpcRefused, open_rpc
from synapse.terminal.signals.codex_server import AppServerEvents
from synapse.terminal.signals.report import Record, SignalKind, SignalReport, TextSoFar, table_at, tables_at, text_at
from synapse.terminal.signals.usage import CodexRolloutUsage, CodexServerUsage

_CLIENT_INFO: Final = {"name": "synapse", "title": "Synapse", "version": "1"}
_PAUSE_SECONDS: Final = 0.2
_RETRY_SECONDS: Final = 0.03
_MAX_RETRY_SECONDS: Final = 1.0
_MAX_THREADS: Final = 20
_RESOLVED_SECONDS: Final = 2.0
_TUI_SECONDS: Final = 15.0
_BLIND_SECONDS: Final = 1.5
"""How long the TUI has to connect first, where the system does not show connections."""
_RECONNECT_SECONDS: Final = 5.0
_LAST_THREADS: Final = 10
_LAST_TURNS: Final = 10
_QUEUE_SIZE: Final = 100
_SOCKET_TABLE: Final = Path("/proc/net/unix")
_CONNECTED: Final = "03"
_TAKEN: Final = "its server took the message from its queue into a turn of its own"


class CodexClient:
    """Implements ApiSender.

    `take` and `say` get the server's reports, `usage` what requests cost; `is_over` says whether the server has ended.
    `converse` gets the conversation in which a turn begins; see `adapters.adapter.LaunchContext`.
    """

    def __init__(
        self,
        socket: Path,
        take: Callable[[SignalReport], None],
        is_over: Callable[[], bool],
        say: Callable[[TextSoFar], None] = lambda _: None,
        converse: Callable[[str], None] = lambda _: None,
        usage: CodexUsage | None = None,
    ) -> None:
        self._socket = socket
        self._take = take
        self._is_over = is_over
        self._say = say
        self._usage = usage
        self._converse = converse
        self._events = AppServerEvents()
        self._rpc: RpcClient | None = None
        self._queued_in = ""
        """The conversation whose queue this connection has seen. An older server has none, nor has a conversation
        that is not kept."""
        self._subscribed = ""
        self._received = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    @property
    def is_ready(self) -> bool:
        """True once the TUI has a conversation, so that messages can be sent."""
        return self._rpc is not None and bool(self._events.thread)

    async def send(self, text: str, key: str, /) -> str:
        """Begins a turn in the conversation that the TUI shows; see `adapters.adapter.ApiSender`."""
        rpc, thread = self._rpc, self._events.thread
        if rpc is None or not thread:
            raise NotTaken("its server has no conversation yet")
        params = {"threadId": thread, "input": [{"type": "text", "text": sanitise(text).strip()}]}
        if await self._has_queue(rpc, thread):
            try:
                return await self._send_by_queue(rpc, params, key)
            except OSError:
                return await self._find_again(rpc, thread, key)
        try:
            result = await rpc.call("turn/start", params)
        except RpcRefused as error:
            raise NotTaken(_refusal(error)) from error
        return _began(result)

    async def reconcile(self, key: str, /) -> SendOutcome:
        """Looks for a message in the last conversations; see `adapters.adapter.ApiSender`."""
        if (rpc := self._rpc) is None:
            return SendOutcome.UNKNOWN
        with suppress(OSError, RpcRefused):
            listed = await rpc.call("thread/list", {"limit": _LAST_THREADS, "sortKey": "updated_at"})
            for thread in tables_at(listed, "data"):
                # One that cannot be read hides no message of the others.
                with suppress(RpcRefused):
                    outcome = await _look_up(rpc, text_at(thread, "id"), key)
                    if outcome is not SendOutcome.UNKNOWN:
                        return outcome
        return SendOutcome.UNKNOWN

    async def answer(self, question_id: str, choice: Choice) -> bool:
        """Answers a request of the server; False when it is not open, or cannot be answered with this choice."""
        found = self._events.result_for(question_id, choice)
        if found is None or self._rpc is None:
            return False
        await self._rpc.answer(*found)
        with suppress(TimeoutError):
            async with asyncio.timeout(_RESOLVED_SECONDS):
                while self._events.is_asking(question_id):
                    self._received.clear()
                    await self._received.wait()
        return True

    async def _has_queue(self, rpc: RpcClient, thread: str) -> bool:
        if self._queued_in != thread:
            try:
                await rpc.call("thread/queue/list", {"threadId": thread})
            except RpcRefused:
                return False
            except OSError as error:
                raise NotTaken("the connection to its server broke before the message was sent") from error
            self._queued_in = thread
        return True

    async def _send_by_queue(self, rpc: RpcClient, params: Record, key: str) -> str:
        thread = text_at(params, "threadId")
        refusal = ""
        try:
            await rpc.call("thread/queue/add", {**params, "clientUserMessageId": key})
        except RpcRefused as error:
            refusal = _refusal(error)
        queued = await _queued(rpc, thread, key)
        if refusal and (not queued or await _withdrawn(rpc, thread, queued)):
            raise NotTaken(refusal)
        if not queued or refusal:
            return _TAKEN
        try:
            return _began(await rpc.call("thread/queue/start", {"threadId": thread, "queuedSubmissionId": queued}))
        except RpcRefused as error:
            if await _withdrawn(rpc, thread, queued):
                raise Busy(f"its server did not begin a turn: {sanitise(str(error))}") from error
        return _TAKEN

    async def _find_again(self, broken: RpcClient, thread: str, key: str) -> str:
        """Finds a message by its key after the connection broke while it was sent; see `send`.

        Raises ConnectionResetError when the server does not show what became of it.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_RECONNECT_SECONDS):
                while self._rpc is None or self._rpc is broken:
                    await pause(_RETRY_SECONDS)
        if (rpc := self._rpc) is not None and rpc is not broken:
            with suppress(RpcRefused):
                outcome = await _look_up(rpc, thread, key)
                if outcome is SendOutcome.WITHDRAWN:
                    raise Busy("the connection to its server broke, and the message was withdrawn from its queue")
                if outcome is SendOutcome.TAKEN:
                    return _TAKEN
        raise ConnectionResetError("the connection to its server broke while the message was sent")

    async def _run(self) -> None:
        # The first client gives the server the name by which the model's vendor knows it: that must be the TUI.
        await self._wait_for_tui()
        while not self._is_over():
            with suppress(OSError, RpcRefused):
                await self._follow()
            await pause(_PAUSE_SECONDS)

    async def _wait_for_tui(self) -> None:
        if not await asyncio.to_thread(_SOCKET_TABLE.exists):
            await pause(_BLIND_SECONDS)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_TUI_SECONDS):
                while not await asyncio.to_thread(_has_client, self._socket):
                    await pause(_RETRY_SECONDS)

    async def _follow(self) -> None:
        """Follows the server until the connection ends."""
        rpc = await open_rpc(self._socket, self._receive)
        tasks = [asyncio.create_task(rpc.follow())]
        try:
            # Without the capability the server reports less than it reports to its TUI.
            await rpc.call("initialize", {"clientInfo": _CLIENT_INFO, "capabilities": {"experimentalApi": True}})
            await rpc.notify("initialized")
            await self._find_thread(rpc)
            self._rpc = rpc
            tasks.append(asyncio.create_task(self._keep_subscribed(rpc)))
            searching = asyncio.create_task(self._search(rpc))
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                searching.cancel()
        finally:
            self._rpc, self._subscribed, self._queued_in = None, "", ""
            for task in tasks:
                task.cancel()
            await rpc.close()

    async def _search(self, rpc: RpcClient) -> None:
        """Finds a conversation that its TUI resumes: no client is told of that, and it takes a moment."""
        with suppress(OSError, RpcRefused):
            while not self._events.thread:
                await pause(_PAUSE_SECONDS)
                await self._find_thread(rpc)
                self._received.set()

    async def _find_thread(self, rpc: RpcClient) -> None:
        """Finds the conversation that began before we connected."""
        loaded: object = (await rpc.call("thread/loaded/list", {})).get("data")
        threads = cast("list[object]", loaded) if isinstance(loaded, list) else []
        for thread in threads[-_MAX_THREADS:]:
            with suppress(RpcRefused):
                result = await rpc.call("thread/read", {"threadId": thread})
                self._events.note_thread(table_at(result, "thread"))
                if self._usage is not None:
                    self._usage.note_thread(table_at(result, "thread"))

    def _receive(self, message: Record) -> None:
        before = self._events.thread
        for report in self._events.read(message):
            self._pass_on(report)
        if before and before != self._events.thread:
            # A person has begun or resumed another one.
            self._converse("")
        if (saying := self._events.take_text()) is not None:
            self._say(saying)
        if self._usage is not None:
            self._usage.read(message, self._events.turn)
        self._received.set()

    def _pass_on(self, report: SignalReport) -> None:
        if report.kind is SignalKind.SUBMITTED:
            self._converse(self._events.thread)
        self._take(report)

    async def _keep_subscribed(self, rpc: RpcClient) -> None:
        """Stays subscribed to the current conversation. The server refuses until its first turn is on disk."""
        delay, tried = _RETRY_SECONDS, ""
        with suppress(OSError):
            while True:
                self._received.clear()
                thread = self._events.thread
                if thread == self._subscribed or (thread == tried and not self._events.has_begun):
                    await self._received.wait()
                    continue
                delay = _RETRY_SECONDS if thread != tried else min(delay * 1.2, _MAX_RETRY_SECONDS)
                tried = thread
                if not await self._subscribe(rpc, thread):
                    await pause(delay)

    async def _subscribe(self, rpc: RpcClient, thread: str) -> bool:
        try:
            await rpc.call("thread/resume", {"threadId": thread, "excludeTurns": True})
            self._subscribed = thread
            if self._events.has_begun:
                await self._catch_up(rpc, thread)
                if self._usage is not None:
                    self._usage.catch_up(thread)
        except RpcRefused:
            return False
        return True

    async def _catch_up(self, rpc: RpcClient, thread: str) -> None:
        result = await rpc.call("thread/turns/list", {"threadId": thread, "limit": 1, "itemsView": "full"})
        for turn in tables_at(result, "data"):
            for report in self._events.catch_up(turn):
                self._pass_on(report)


class CodexUsage:
    """Passes on what requests cost: what the server tells, and what its rollout has from before we subscribed."""

    def __init__(self, started: str, note_usage: Callable[[UsageReport], None]) -> None:
        self._note_usage = note_usage
        self._reader = CodexServerUsage()
        self._rollout = UsageTail(CodexRolloutUsage, started, note_usage)

    def read(self, message: Record, turn: str) -> None:
        """Takes a notification of the server; `turn` is the one that runs, or ran last."""
        used = self._reader.read(message)
        # Of a resumed conversation the server tells the last request of an earlier run.
        if used is not None and used.turn == turn:
            self._note_usage(used)

    def note_thread(self, thread: Record) -> None:
        """Takes a conversation that was begun before we connected."""
        self._reader.note_thread(thread)

    def catch_up(self, thread: str) -> None:
        """Reads what the conversation's rollout has by now."""
        path = self._reader.paths.get(thread, "")
        if path:
            self._rollout.follow(Path(path))
            self._rollout.read()


def _refusal(error: RpcRefused) -> str:
    return f"its server refused the message: {sanitise(str(error))}"


def _began(result: Record) -> str:
    return f"its server began the turn {text_at(result, 'turn', 'id')}"


async def _queued(rpc: RpcClient, thread: str, key: str) -> str:
    """Returns the id of the message in the server's queue; empty if it is not there."""
    params: dict[str, object] = {"threadId": thread, "limit": _QUEUE_SIZE}
    while True:
        page = await rpc.call("thread/queue/list", params)
        for entry in tables_at(page, "data"):
            if text_at(entry, "clientUserMessageId") == key:
                return text_at(entry, "id")
        params["cursor"] = text_at(page, "nextCursor")
        if not params["cursor"]:
            return ""


async def _withdrawn(rpc: RpcClient, thread: str, queued: str) -> bool:
    """Takes a message out of the server's queue; False if its turn has begun."""
    result = await rpc.call("thread/queue/delete", {"threadId": thread, "queuedSubmissionId": queued})
    return result.get("deleted") is True


async def _look_up(rpc: RpcClient, thread: str, key: str) -> SendOutcome:
    """Returns what became of a message in a conversation; withdraws it if it is queued there."""
    queued = await _queued(rpc, thread, key)
    if queued and await _withdrawn(rpc, thread, queued):
        return SendOutcome.WITHDRAWN
    return SendOutcome.TAKEN if queued or await _has_turn(rpc, thread, key) else SendOutcome.UNKNOWN


async def _has_turn(rpc: RpcClient, thread: str, key: str) -> bool:
    """Returns whether one of the last turns has the message."""
    result = await rpc.call("thread/turns/list", {"threadId": thread, "limit": _LAST_TURNS, "itemsView": "full"})
    items = (item for turn in tables_at(result, "data") for item in tables_at(turn, "items"))
    return any(text_at(item, "clientId") == key for item in items)


def _has_client(socket: Path) -> bool:
    """Returns whether a client is connected to the socket, by the system's table of sockets."""
    try:
        rows = [row.split() for row in _SOCKET_TABLE.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return True
    return any(len(row) > 7 and row[7] == str(socket) and row[5] == _CONNECTED for row in rows)
