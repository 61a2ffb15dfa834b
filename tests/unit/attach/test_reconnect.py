"""`synapse attach` goes on with a new connection after a loss, and leaves none open that nobody uses."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection
from websockets.sync.server import ServerConnection, unix_serve

from synapse.attach.client import AgentSearch, AttachOptions, Detached, attach
from synapse.attach.frames import Role, encode
from synapse.attach.person import PersonTerminal
from synapse.core.override import override

# websockets 17 wants connections in `with` blocks, or an argument that 14 does not have.
pytestmark = pytest.mark.filterwarnings("ignore:connect\\(\\) must be used:DeprecationWarning")
DETACH = b"\x1d"
Serve = Callable[[ServerConnection], None]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synapse.attach.client._RETRY_SECONDS", 0.01)


@pytest.fixture
def place() -> Iterator[Path]:
    # Not pytest's folder: the path of a Unix socket must be short.
    with tempfile.TemporaryDirectory(prefix="syn-") as folder:
        yield Path(folder) / "a.sock"


@contextmanager
def serving(place: Path, serve: Serve) -> Generator[None]:
    with unix_serve(serve, str(place)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join(10)


def ended_search() -> None:
    """Waits until the search has nothing left to do."""
    for thread in threading.enumerate():
        if thread.name == "attach-search":
            thread.join(10)


def test_a_connection_that_is_taken_stays_open_when_the_search_ends(place: Path) -> None:
    taken = SimpleQueue[ClientConnection | Detached | None]()

    def take() -> None:
        taken.put(search.take())
        search.__exit__()

    search = AgentSearch(lambda: str(place), take)
    with serving(place, lambda connection: list(connection).clear()):
        search.__enter__()
        connection = taken.get(timeout=10)
        ended_search()

        assert isinstance(connection, ClientConnection)
        assert connection.ping().wait(5)
        connection.close()


def test_a_connection_that_nobody_takes_is_closed(place: Path) -> None:
    is_closed = threading.Event()

    def wait_closed(connection: ServerConnection) -> None:
        list(connection)
        is_closed.set()

    def leave() -> None:
        search.__exit__()

    search = AgentSearch(lambda: str(place), leave)
    with serving(place, wait_closed):
        search.__enter__()

        assert is_closed.wait(10)
        ended_search()


class SlowTerminal(PersonTerminal):
    """A person's terminal that takes nothing of the first host's output until it `drains`."""

    def __init__(self, source: int, sink: int) -> None:
        super().__init__(source, sink)
        self.drains = threading.Event()
        self.is_full = threading.Event()
        self._first: threading.Thread | None = None

    @override
    def size(self) -> tuple[int, int]:
        thread = threading.current_thread()
        if thread.name == "attach-show" and self._first in (None, thread):
            self._first = thread
            self.is_full.set()
            self.drains.wait(20)
        return 80, 24

    def take_rest(self) -> None:
        """Waits until the output of the first host is written."""
        self.drains.set()
        assert self._first is not None
        self._first.join(10)


def test_output_of_the_lost_connection_that_ends_late_does_not_end_the_new_one(place: Path) -> None:
    source, keys = os.pipe()
    screen, sink = os.pipe()
    person = SlowTerminal(source, sink)
    connections = iter(("first", "second"))
    heard = SimpleQueue[bytes | str | None]()

    def lose(connection: ServerConnection) -> None:
        connection.send(encode(Role(types=True)))
        person.is_full.wait(10)
        connection.close(1012)
        os.write(keys, b"x")  # the keys notice the loss, because the output waits

    def serve(connection: ServerConnection) -> None:
        connection.recv(10)
        if next(connections) == "first":
            lose(connection)
            return
        person.take_rest()
        os.write(keys, b"y")
        try:
            heard.put(connection.recv(10))
        except ConnectionClosed:
            heard.put(None)
        os.write(keys, DETACH)

    with serving(place, serve):
        ended = attach(str(place), AttachOptions(), person, find_again=lambda: str(place))

    assert (heard.get(timeout=10), ended) == (b"y", Detached("detached"))
    for end in (source, keys, screen, sink):
        os.close(end)
