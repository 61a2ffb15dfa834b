"""The registry as a folder of files, and whether the processes in it are alive or stopped."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from synapse.core.override import override
from synapse.registry.files import (
    UNKNOWN,
    FileRegistry,
    is_alive,
    is_gone,
    is_running,
    is_stopped,
    own_namespace,
    start_time,
)
from tests.fakes.processes import bystander

NO_SUCH_PID = 2**22 + 1


@pytest.fixture
def registry(tmp_path: Path) -> FileRegistry:
    return FileRegistry(tmp_path / "home" / "registry")


def living(port: int = 8120) -> AgentEntry:
    started = start_time(os.getpid()) or 0
    return AgentEntry(f"synapse-codex-{port}", "codex", port=port, pid=os.getpid(), pid_started=started)


def test_an_entry_is_read_as_it_was_written(registry: FileRegistry) -> None:
    entry = living()
    entry.name, entry.working_dir, entry.inbox = "評価者", "/tmp/日本", "x"

    registry.write(entry)

    assert [one.as_dict() for one in registry.entries()] == [entry.as_dict()]


def test_files_and_folders_are_private(registry: FileRegistry, tmp_path: Path) -> None:
    registry.write(living())

    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "home", *(tmp_path / "home").rglob("*"))]
    assert modes == [0o700, 0o700, 0o600]


def test_a_missing_folder_has_no_entries(registry: FileRegistry) -> None:
    assert registry.entries() == []
    registry.remove("synapse-codex-8120")


def test_entries_are_in_the_order_of_their_ids(registry: FileRegistry) -> None:
    for port in (8122, 8120, 8121):
        registry.write(living(port))

    assert [entry.port for entry in registry.entries()] == [8120, 8121, 8122]


def test_the_entry_of_a_dead_host_is_removed(registry: FileRegistry) -> None:
    registry.write(AgentEntry("synapse-codex-8120", "codex", pid=NO_SUCH_PID, pid_started=1))

    assert len(registry.written()) == 1
    assert registry.entries() == []
    assert registry.written() == []
    assert registry.notes == [f"removed synapse-codex-8120: its host (pid {NO_SUCH_PID}) is gone"]


def test_a_pid_that_another_process_has_now_is_a_dead_host(registry: FileRegistry) -> None:
    reused = living()
    reused.pid_started -= 1
    registry.write(reused)

    assert registry.entries() == []


def test_a_host_whose_pid_a_sandbox_hides_is_known_by_its_socket(registry: FileRegistry, tmp_path: Path) -> None:
    path = str(tmp_path / "host.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        hidden = AgentEntry("synapse-codex-8120", "codex", pid=NO_SUCH_PID, pid_started=1, socket=path)
        registry.write(hidden)

        assert [entry.pid for entry in registry.entries()] == [NO_SUCH_PID]
    assert not is_alive(hidden)


def test_a_new_host_in_the_place_of_a_dead_one_is_left_alone(registry: FileRegistry) -> None:
    dead = AgentEntry("synapse-codex-8120", "codex", pid=NO_SUCH_PID, pid_started=1)
    registry.write(living())

    registry.remove_dead(dead)

    assert len(registry.entries()) == 1


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"agent_id": 1}', '{"agent_id": "other", "agent_type": "x"}']
)
def test_a_broken_file_is_moved_aside(registry: FileRegistry, content: str) -> None:
    registry.write(living())
    path = Path(registry.folder, "synapse-claude-8100.json")
    path.write_text(content, encoding="utf-8")

    assert len(registry.entries()) == 1
    assert not path.exists()
    assert path.with_name("synapse-claude-8100.json.broken").exists()
    assert "does not describe an agent" in registry.notes[0]


def test_fields_of_the_wrong_type_do_not_matter(registry: FileRegistry) -> None:
    registry.write(living())
    path = Path(registry.folder, "synapse-codex-8120.json")
    path.write_text(path.read_text(encoding="utf-8").replace('"port": 8120', '"port": "x"'), encoding="utf-8")

    assert registry.entries()[0].port == 0


def test_drafts_and_other_files_are_no_entries(registry: FileRegistry) -> None:
    registry.write(living())
    for name in (".synapse-codex-8121.99", "readme.txt", ".hidden.json"):
        Path(registry.folder, name).write_text("x", encoding="utf-8")

    assert len(registry.entries()) == 1
    assert registry.notes == []


@pytest.mark.parametrize("agent_id", ["", "../evil", "a/b", ".hidden", "a\0b"])
def test_an_id_never_leads_out_of_the_folder(registry: FileRegistry, agent_id: str) -> None:
    with pytest.raises(ValueError, match="agent id"):
        registry.write(AgentEntry(agent_id, "codex"))
    assert registry.find(agent_id) is None
    registry.remove(agent_id)


def test_a_zombie_does_not_run() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert start_time(child.pid) is None
    child.wait()


def test_a_process_is_running_only_with_its_start_time() -> None:
    started = start_time(os.getpid())

    assert started
    assert is_running(os.getpid(), started)
    assert is_running(os.getpid(), 0)
    assert not is_running(os.getpid(), started + 1)
    assert not is_running(0, 0)


def test_an_entry_whose_file_was_lost_is_written_again_and_another_hosts_is_left(registry: FileRegistry) -> None:
    entry = living()
    registry.write(entry)

    assert not registry.restore(entry)
    registry.remove(entry.agent_id)
    assert registry.restore(entry)
    assert [one.pid for one in registry.entries()] == [os.getpid()]

    other = living()
    other.name = "another host that took the place"
    registry.write(other)
    assert not registry.restore(entry)
    assert [one.name for one in registry.entries()] == ["another host that took the place"]


def test_a_host_of_our_own_pid_namespace_is_gone_with_its_pid_without_a_connection(tmp_path: Path) -> None:
    path = str(tmp_path / "host.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        gone = AgentEntry("a", "t", pid=NO_SUCH_PID, pid_started=1, socket=path, pid_namespace=own_namespace())
        foreign = AgentEntry("a", "t", pid=NO_SUCH_PID, pid_started=1, socket=path, pid_namespace=1)

        assert not is_alive(gone)
        assert is_alive(foreign)
    assert not is_alive(foreign)


@pytest.mark.parametrize(("folder", "may_live"), [("there", False), ("missing", True)])
def test_a_socket_that_is_missing_proves_the_end_only_where_its_folder_is_seen(
    tmp_path: Path, folder: str, may_live: bool
) -> None:
    (tmp_path / "there").mkdir()
    path = str(tmp_path / folder / "host.sock")

    assert is_alive(AgentEntry("a", "t", pid=NO_SUCH_PID, pid_started=1, socket=path, pid_namespace=1)) is may_live
    assert not is_alive(AgentEntry("a", "t", pid=NO_SUCH_PID, pid_started=1, socket=path))


def test_a_process_is_surely_gone_when_none_or_another_has_its_pid() -> None:
    started = start_time(os.getpid()) or 0

    assert is_gone(NO_SUCH_PID, 1)
    assert is_gone(os.getpid(), started + 1)
    assert not is_gone(os.getpid(), started)
    assert not is_gone(os.getpid(), 0)


class ReadOnlyRegistry(FileRegistry):
    """A registry in a folder that has become read-only."""

    @override
    def remove(self, agent_id: str) -> None:
        """Removes nothing."""


def test_an_entry_that_could_not_be_removed_is_noted_as_such(tmp_path: Path) -> None:
    registry = ReadOnlyRegistry(tmp_path / "registry")
    registry.write(AgentEntry("synapse-codex-8120", "codex", pid=NO_SUCH_PID, pid_started=1))

    assert registry.entries() == []
    assert registry.notes == [f"could not remove synapse-codex-8120: its host (pid {NO_SUCH_PID}) is gone"]


def test_a_process_is_stopped_until_it_continues() -> None:
    with bystander() as process:
        assert not is_stopped(process.pid, process.started)

        process.stop()
        assert is_stopped(process.pid, process.started)
        assert is_stopped(process.pid, UNKNOWN)

        process.go_on()
        assert not is_stopped(process.pid, process.started)


def test_a_pid_that_another_process_has_now_is_not_stopped() -> None:
    with bystander() as process:
        process.stop()

        assert not is_stopped(process.pid, process.started + 1)


def test_a_process_that_runs_or_does_not_exist_is_not_stopped() -> None:
    assert not is_stopped(os.getpid(), start_time(os.getpid()) or 0)
    assert not is_stopped(NO_SUCH_PID, UNKNOWN)
    assert not is_stopped(0, UNKNOWN)
