"""`synapse attach` says in words why it cannot attach."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from synapse.attach.client import AttachOptions, attach
from synapse.attach.person import PersonTerminal
from synapse.core.errors import AgentFailed


@pytest.fixture
def place() -> Iterator[Path]:
    # Not pytest's folder: the path of a Unix socket must be short.
    with tempfile.TemporaryDirectory(prefix="syn-") as folder:
        yield Path(folder) / "a.sock"


@pytest.fixture
def person() -> Iterator[PersonTerminal]:
    source, sink = os.pipe()
    yield PersonTerminal(source, sink)
    os.close(source)
    os.close(sink)


def refusal(place: Path, person: PersonTerminal, timeout: float = 10.0) -> str:
    with pytest.raises(AgentFailed) as refused:
        attach(str(place), AttachOptions(), person, timeout=timeout)
    return str(refused.value)


def listener(place: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(place))
    listening.listen()
    return listening


def test_no_host_listens_at_the_socket(place: Path, person: PersonTerminal) -> None:
    assert refusal(place, person) == f"no agent answers at {place}: No such file or directory"


def test_the_path_is_longer_than_the_system_takes(place: Path, person: PersonTerminal) -> None:
    assert refusal(place / ("x" * 200), person).endswith(": AF_UNIX path too long")


def test_the_host_says_nothing(place: Path, person: PersonTerminal) -> None:
    with closing(listener(place)):
        assert refusal(place, person, 0.05) == f"no agent answers at {place}: the server there does not answer"


@pytest.mark.parametrize("said", [b"", b"SSH-2.0-x\r\n"])
def test_the_server_at_the_socket_is_no_host(place: Path, person: PersonTerminal, said: bytes) -> None:
    with closing(listener(place)) as listening:

        def answer() -> None:
            with listening.accept()[0] as caller:
                caller.recv(4096)
                caller.sendall(said)

        speaker = threading.Thread(target=answer)
        speaker.start()
        why = refusal(place, person)
        speaker.join(10)

    assert why == f"no agent answers at {place}: the server there closed the connection, or is not an agent's host"
