"""Viewers of an agent's terminal: a picture at once, then live; one of them types; detaching leaves it running."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import sys
import termios
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, unix_serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from synapse.attach.server import AttachServer
from synapse.core.caller import Caller
from synapse.core.errors import PersonRequired
from synapse.drivers.pty.person_input import LineRouting
from synapse.drivers.pty.program import TerminalUsers
from synapse.drivers.pty.pump import PersonStreams
from synapse.terminal.picture import Picture
from synapse.terminal.screen import Screen
from tests.integration.attach.seat import SHELL_PROMPT, Seat, children, seated
from tests.integration.pty.terminals import Stage, agent, answer, dummy, line_program, staged

pytestmark = pytest.mark.integration

CLIENT = str(Path(__file__).with_name("attach_here.py"))


class SocketChannel:
    """The attach server's Channel over a WebSocket of the library that the client uses too."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def accept(self) -> None:
        """Does nothing: the handshake is done already."""

    async def receive(self) -> bytes | str | None:
        try:
            return await self._connection.recv()
        except ConnectionClosed:
            return None

    async def send(self, data: bytes | str) -> None:
        try:
            await self._connection.send(data)
        except ConnectionClosed as closed:
            raise ConnectionError from closed

    async def close(self, code: int = 1000, reason: str = "") -> None:
        await self._connection.close(code, reason)


@dataclass(slots=True)
class AttachableAgent:
    """An agent in the background that people can attach to."""

    stage: Stage
    socket: str

    def viewer(self, *words: str) -> AbstractContextManager[Seat]:
        return seated(sys.executable, CLIENT, self.socket, *words)


@asynccontextmanager
async def attachable(
    command: tuple[str, ...], folder: Path, *, caller: Caller | None = None, users: TerminalUsers | None = None
) -> AsyncGenerator[AttachableAgent, None]:
    async with staged(command, line_program(), users=users) as stage:
        server = AttachServer(stage.program)

        async def serve(connection: ServerConnection) -> None:
            try:
                await server(SocketChannel(connection), caller or Caller(via_socket=True))
            except PersonRequired:
                await connection.close(1008, "person_required")

        path = str(folder / "attach.sock")
        async with unix_serve(serve, path, compression=None):
            yield AttachableAgent(stage, path)


def attached(here: AttachableAgent, *words: str, story: Callable[[Seat], None]) -> asyncio.Future[None]:
    """Lets a person attach and do what `story` says, in a thread: the agent's loop goes on."""

    def sit() -> None:
        with here.viewer(*words) as seat:
            story(seat)

    return asyncio.ensure_future(asyncio.to_thread(sit))


async def test_a_viewer_sees_the_screen_at_once_types_and_leaves_the_agent_running(tmp_path: Path) -> None:
    def story(seat: Seat) -> None:
        before = termios.tcgetattr(seat.terminal)
        seat.sees("echo: before you came")
        seat.types("hello\r")
        seat.sees("echo: hello")
        seat.types("\x1d")
        seat.sees("left: detached None")
        assert termios.tcgetattr(seat.terminal) == before

    async with attachable(dummy().command, tmp_path) as here:
        await here.stage.turn("before you came")
        await attached(here, story=story)

        assert answer(await here.stage.turn("still there?")) == "echo: still there?"


LEAVE = "Ctrl-] leaves it running"


@pytest.mark.parametrize("waits", [True, False])
async def test_a_viewer_is_shown_how_to_leave_and_then_has_the_programs_screen_again(
    tmp_path: Path, *, waits: bool
) -> None:
    def story(seat: Seat) -> None:
        seat.reads_until(lambda: LEAVE in shown(seat).lines[-1], "the note in the bottom row")
        before = shown(seat)
        # Also in the window's title, which the shell gets back.
        assert f"\x1b]2;{LEAVE}\x07".encode() in seat.seen
        if not waits:
            seat.types("x")
        seat.reads_until(lambda: not shown(seat).lines[-1].strip(), "the bottom row without the note")
        expected = before.lines[:-1] if waits else typed(before.lines[:-1])
        # What was typed comes back from the program, a moment after the note has gone.
        seat.reads_until(lambda: shown(seat).lines[:-1] == expected, "the program's screen")
        seat.types("\x1d")
        seat.sees(b"\x1b[?1049l\x1b[23;2t")

    def typed(lines: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{line} x" if line == ">" else line for line in lines)

    async with attachable(dummy().command, tmp_path) as here:
        await here.stage.turn("before you came")
        await attached(here, story=story)


async def test_an_answer_of_the_viewers_terminal_does_not_hide_how_to_leave(tmp_path: Path) -> None:
    def story(seat: Seat) -> None:
        seat.types(b"\x1b[?62;22c\x1b[I")
        seat.reads_until(lambda: LEAVE in shown(seat).lines[-1], "the note in the bottom row")

    async with attachable(dummy().command, tmp_path) as here:
        await here.stage.ready()
        await attached(here, story=story)


async def test_a_note_about_the_keyboard_stays_beside_how_to_leave(tmp_path: Path) -> None:
    def story(seat: Seat) -> None:
        seat.reads_until(lambda: LEAVE in shown(seat).lines[-1], "how to leave")
        assert "looking only: another person types" in shown(seat).lines[-1]

    async with attachable(dummy().command, tmp_path) as here:
        await here.stage.ready()
        with here.viewer() as first:
            await asyncio.to_thread(first.sees, "> ")
            await attached(here, story=story)


async def test_the_size_follows_the_viewer_who_types(tmp_path: Path) -> None:
    def story(seat: Seat) -> None:
        seat.sees("size 100x30")
        seat.resizes(71, 19)
        seat.sees("size 71x19")

    async with attachable(agent("sizes"), tmp_path) as here:
        here.stage.program.resize(120, 40)
        await attached(here, story=story)

        assert here.stage.program.size == (71, 19)


async def test_of_several_viewers_the_first_types_until_another_takes_over(tmp_path: Path) -> None:
    async with attachable(dummy().command, tmp_path) as here:
        await here.stage.ready()
        await asyncio.to_thread(two_viewers, here)


def two_viewers(here: AttachableAgent) -> None:
    with here.viewer() as first:
        first.sees("> ")
        first.types("one\r")
        first.sees("echo: one")
        with here.viewer() as second:
            second.sees("echo: one")
            second_takes_over(first, second)


def second_takes_over(first: Seat, second: Seat) -> None:
    second.types("not mine\r")
    second.sees("looking only")
    second.types("\x1c")
    second.sees("your keys now reach the agent")
    first.sees("looking only")
    second.types("two\r")
    second.sees("echo: two")
    first.sees("echo: two")
    assert b"not mine" not in first.seen

    second.types("\x1d")
    second.sees("left: detached")
    first.sees("your keys now reach the agent")
    # Pressed a moment too late: to the program it would mean to quit.
    first.types("\x1cthree\r")
    first.sees("echo: three")


async def test_a_viewer_who_only_looks_cannot_type(tmp_path: Path) -> None:
    def story(seat: Seat) -> None:
        seat.sees("> ")
        seat.types("\x1c")
        seat.types("hello\r")
        seat.types("\x1d")
        seat.sees("left: detached")

    async with attachable(dummy().command, tmp_path) as here:
        await here.stage.ready()
        await attached(here, "look", "take", story=story)

        assert "hello" not in here.stage.screen()


async def test_a_viewer_may_take_over_at_once(tmp_path: Path) -> None:
    async with attachable(dummy().command, tmp_path) as here:
        await here.stage.ready()
        await asyncio.to_thread(a_viewer_that_takes_over, here)


def a_viewer_that_takes_over(here: AttachableAgent) -> None:
    with here.viewer() as first:
        first.sees("> ")
        with here.viewer("take") as second:
            second.sees("> ")
            first.sees("looking only")
            second.types("mine\r")
            second.sees("echo: mine")


async def test_at_a_foreground_agent_a_viewer_types_only_by_taking_over(tmp_path: Path) -> None:
    def story(seat: Seat) -> None:
        seat.sees("looking only")
        seat.sees("takes over · painted for 120 x 40 ")
        seat.types("not mine\r")
        seat.types("\x1c")
        seat.sees("your keys now reach the agent")
        seat.types("mine\r")
        seat.sees("echo: mine")

    keys, their_keys = os.pipe()
    sink = os.open(os.devnull, os.O_WRONLY)
    person = PersonStreams(keys, sink)
    try:
        async with attachable(dummy().command, tmp_path, users=TerminalUsers(person=person)) as here:
            await here.stage.ready()
            here.stage.program.resize(120, 40)
            await attached(here, story=story)

            assert "not mine" not in here.stage.screen()
    finally:
        for number in (keys, their_keys, sink):
            os.close(number)


async def test_the_detach_key_can_be_changed(tmp_path: Path) -> None:
    def story(seat: Seat) -> None:
        seat.sees("> ")
        seat.types("a\x1d\r")
        seat.sees("echo: a")
        seat.types("\x1b[111;5u")
        seat.sees("left: detached")

    async with attachable(dummy().command, tmp_path) as here:
        await attached(here, "key=o", story=story)


async def test_the_end_of_the_program_ends_the_attachment_with_its_status(tmp_path: Path) -> None:
    def story(seat: Seat) -> None:
        seat.sees("> ")
        seat.types("lines 3\r")
        seat.types("exit 6\r")
        seat.sees("left: the program ended 6")
        assert b"line 3" in seat.seen

    async with attachable(dummy().command, tmp_path) as here:
        await attached(here, story=story)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_viewer_that_is_terminated_restores_its_terminal(tmp_path: Path, number: signal.Signals) -> None:
    def sit(here: AttachableAgent) -> None:
        words = f"{sys.executable} {CLIENT} {here.socket}; echo left with $?; sleep 60"
        with seated("sh", "-c", words) as seat:
            before = termios.tcgetattr(seat.terminal)
            seat.sees("> ")
            (client,) = children(seat.pid)
            os.kill(client, number)
            seat.sees(b"\x1b[?1049l")
            seat.sees(f"left with {128 + number}")
            assert termios.tcgetattr(seat.terminal) == before

    async with attachable(dummy().command, tmp_path) as here:
        await here.stage.ready()
        await asyncio.to_thread(sit, here)


async def test_a_slow_viewer_gets_a_fresh_picture_instead_of_a_backlog(tmp_path: Path) -> None:
    async with attachable(agent("flooder", "30"), tmp_path) as here:
        with here.viewer() as seat:
            await asyncio.to_thread(seat.sees, "this is a line")
            # All of the flood is printed while the viewer reads nothing of it.
            await here.stage.ready()
            await asyncio.to_thread(seat.sees, "> ")
            assert len(seat.seen) < 15_000_000

            seat.types("hi\r")
            await asyncio.to_thread(seat.sees, "hello")


async def test_a_line_for_another_agent_is_found_in_a_viewers_terminal_too(tmp_path: Path) -> None:
    sent: list[tuple[str, str]] = []

    def story(seat: Seat) -> None:
        seat.sees("> ")
        seat.types("@codex hi\r")
        seat.types("hello\r")
        seat.sees("echo: hello")

    routing = LineRouting(lambda name: name, lambda target, text: sent.append((target, text)))
    async with attachable(dummy().command, tmp_path, users=TerminalUsers(routing=routing)) as here:
        await here.stage.ready()
        await attached(here, story=story)

        assert sent == [("codex", "hi")]
        assert "echo: @codex" not in here.stage.screen()


async def test_a_viewers_terminal_does_not_answer_the_programs_queries_a_second_time(tmp_path: Path) -> None:
    def story(seat: Seat) -> None:
        seat.sees("> ")
        seat.types("a\x1b[?62c\x1b[1;2R\x1b]11;rgb:0/0/0\x07b\x1b[<")
        seat.types("35;1;1Mc\r")
        seat.sees("echo: ab")

    async with attachable(dummy().command, tmp_path) as here:
        await here.stage.ready()
        await attached(here, story=story)

        assert "62" not in here.stage.screen()
        assert "rgb" not in here.stage.screen()


async def test_an_agent_may_not_attach(tmp_path: Path) -> None:
    def story(seat: Seat) -> None:
        seat.sees("left: the agent's host closed the connection")

    async with attachable(dummy().command, tmp_path, caller=Caller(agent_id="codex-1")) as here:
        await attached(here, story=story)


def test_a_socket_without_a_host_is_an_error(tmp_path: Path) -> None:
    with seated(sys.executable, CLIENT, str(tmp_path / "nobody.sock")) as seat:
        seat.sees("refused: no agent answers")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (403, "refused: the agent's host refuses: only a person may attach"),
        (404, "refused: this agent has no terminal to attach to"),
    ],
)
async def test_the_refusal_of_a_host_is_shown_in_its_own_words(tmp_path: Path, status: int, said: str) -> None:
    body = '{"error": {"code": "person_required", "message": "only a person may attach", "hint": ""}}'

    async def serve(_: ServerConnection) -> None:
        raise AssertionError("the server must not get this far")

    def refuse(connection: ServerConnection, _: Request) -> Response:
        return connection.respond(status, body)

    path = str(tmp_path / "refusing.sock")
    async with unix_serve(serve, path, process_request=refuse):
        with seated(sys.executable, CLIENT, path) as seat:
            await asyncio.to_thread(seat.sees, said)


def shown(seat: Seat) -> Picture:
    """Returns what the person's terminal shows after all the bytes that it got."""
    screen = Screen(100, 30)
    screen.feed(seat.seen)
    return screen.picture()


async def test_after_kill_9_of_a_viewer_reset_repairs_the_terminal_and_stty_sane_does_not(tmp_path: Path) -> None:
    if shutil.which("reset") is None:
        pytest.skip("reset is not installed")

    def story(seat: Seat, socket: str) -> None:
        seat.sees(SHELL_PROMPT)
        seat.types(f"{shlex.join((sys.executable, CLIENT, socket))}\r")
        seat.reads_until(lambda: shown(seat).alternate, "the agent's full screen")
        for pid in children(seat.pid):
            os.kill(pid, signal.SIGKILL)
        seat.sees("Killed")
        seat.types("\x03stty sane\r")
        seat.sees(SHELL_PROMPT)

        assert shown(seat).alternate

        seat.types("reset\r")
        seat.reads_until(lambda: not shown(seat).alternate, "the ordinary screen")

    async with attachable(agent("painter"), tmp_path) as here:
        await here.stage.sees("%")

        def sit() -> None:
            with seated("bash", "--norc", "--noprofile", "--noediting", "-i") as seat:
                story(seat, here.socket)

        await asyncio.to_thread(sit)
