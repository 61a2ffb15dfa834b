"""`synapse top` ends when its terminal is gone or does not drain: nobody could end it afterwards but by `kill -9`."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from synapse.drivers.pty.process import Launch, Program, spawn
from synapse.registry.files import start_time
from tests.integration.attach.seat import Seat, children
from tests.integration.cli.session import COMMAND, Session
from tests.integration.waiting import until
from tests.unit.cli.fake_host import FakeHost
from tests.unit.top.statuses import working

pytestmark = pytest.mark.integration
BOUND = 15.0
never = threading.Event()


class Overview(Seat):
    """`synapse top` on a terminal, which may be closed."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.top = program.pid
        """The process of `synapse top` itself."""

    def close(self) -> None:
        """Closes the terminal, as when its window is closed or its tmux session is killed."""
        os.close(self.terminal)
        self.terminal = -1


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="syn-") as folder:
        yield Path(folder)


@contextmanager
def overview(home: Path, *wrapper: str) -> Generator[Overview]:
    """Runs `synapse top` with an agent whose status changes all the time."""
    environ = {**Session(home).environ, "TERM": "xterm-256color"}
    over = threading.Event()
    with FakeHost(home, name="ada").serving() as host:

        def change() -> None:
            for number in itertools.count():
                if over.wait(0.005):
                    return
                host.tell(**working(number, f"{number} ".ljust(70, "abcdefgh"[number % 8])))

        program = spawn(Launch(command=(*wrapper, *COMMAND, "top"), env=environ, columns=100, rows=30))
        opened, changing = Overview(program), threading.Thread(target=change)
        try:
            changing.start()
            opened.sees("ada")
            opened.top = next(iter(children(program.pid) if wrapper else ()), program.pid)
            yield opened
        finally:
            over.set()
            changing.join()
            for pid in {program.pid, opened.top}:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if opened.terminal >= 0:
                os.close(opened.terminal)
            os.waitpid(program.pid, 0)


def ends(pid: int) -> None:
    until(lambda: start_time(pid) is None, "the end of synapse top", bound=BOUND)


def test_it_ends_when_its_terminal_is_closed(home: Path) -> None:
    with overview(home) as top:
        top.close()

        ends(top.top)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_although_its_terminal_takes_no_more(home: Path, number: signal.Signals) -> None:
    with overview(home) as top:
        # Nobody reads: what it writes waits in the terminal, then in a queue of its own, then it waits itself.
        never.wait(3)

        os.kill(top.top, number)

        ends(top.top)


def test_it_ends_without_its_terminal_although_no_signal_tells_it(home: Path) -> None:
    # The signal goes to the session of the terminal, which is another one here.
    with overview(home, "setsid", "--wait") as top:
        top.close()

        ends(top.top)
