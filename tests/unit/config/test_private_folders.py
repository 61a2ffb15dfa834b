"""Folders and files in the state folder are open to their user only."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from synapse.auth.local import own_token
from synapse.config.private_files import make_folders, make_private, write_private
from synapse.core.agent import AgentEntry
from synapse.core.driver import Turn
from synapse.core.message import FilePart, Message, MessageId, Role
from synapse.core.requests import ExternalAgent
from synapse.core.task import TaskId
from synapse.drivers.pty.prompt_files import PromptFiles
from synapse.external.files import FileCredentials, FileExternalStore
from synapse.registry.files import FileRegistry
from synapse.server.listener import listen_in
from synapse.store.file import prepare_location


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct, autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def open_to_others(above: Path) -> list[Path]:
    return [path for path in above.rglob("*") if path.stat().st_mode & 0o077]


def compose(home: Path) -> None:
    message = Message(message_id=MessageId("m"), role=Role.USER, parts=(FilePart(content=b"x", name="a.txt"),))
    PromptFiles(home / "files", 100).compose(Turn(task_id=TaskId("t"), message=message, text="see", first=True))


def listen_for_a_moment(home: Path) -> None:
    listen_in(home / "uds", "a.sock", uid=os.getuid()).close()


WRITERS: dict[str, Callable[[Path], object]] = {
    "files of messages": compose,
    "the registry": lambda home: FileRegistry(home / "registry").write(AgentEntry("synapse-x-1", "x")),
    "agents elsewhere": lambda home: FileExternalStore(home / "external").write(
        ExternalAgent(alias="a", url="http://a", name="a")
    ),
    "their credentials": lambda home: FileCredentials(home / "external" / "credentials").write("a", {"X": "y"}),
    "the token": own_token,
    "the store": lambda home: prepare_location(home / "store.db"),
    "sockets": listen_for_a_moment,
}


@pytest.mark.parametrize("what", WRITERS)
def test_nothing_is_open_to_others_whatever_the_umask(tmp_path: Path, what: str) -> None:
    WRITERS[what](tmp_path / "above" / "home")

    assert open_to_others(tmp_path) == []


def test_a_folder_of_the_user_is_closed_to_others(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for folder in ("files", "registry", "external"):
        (home / folder).mkdir(parents=True)
        (home / folder).chmod(0o777)
    (home / "files" / "t").mkdir()
    (home / "files" / "t").chmod(0o755)

    for what in ("files of messages", "the registry", "agents elsewhere"):
        WRITERS[what](home)

    assert open_to_others(home) == []


def test_a_parent_folder_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    make_private(tmp_path / "a" / "b")
    make_folders(tmp_path)

    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_path_that_is_not_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    for make in (make_private, make_folders):
        with pytest.raises(OSError, match="file"):
            make(tmp_path / "file")


def test_a_file_that_was_open_is_closed_when_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    path.write_text("{}", encoding="utf-8")
    path.chmod(0o644)

    write_private(path, "new")

    assert (path.read_text(encoding="utf-8"), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o600)
