"""The overview's agents of other machines, over a fake link with real sockets."""

from __future__ import annotations

from pathlib import Path

from synapse.registry.files import FileRegistry
from synapse.top.remote import RemoteEntries
from tests.fakes.link import FakeLink


def test_agents_of_other_machines_stay_the_same_while_they_run(tmp_path: Path) -> None:
    with FakeLink(tmp_path).serving() as link:
        link.start("box2", name="codex")
        remote = RemoteEntries(str(tmp_path), FileRegistry(tmp_path / "registry"))

        (first,) = remote.entries()
        (second,) = remote.entries()

        assert first is second
        assert (first.name, first.inbox.partition("!")[0]) == ("codex@box2", "box2")
        link.away["box2"] = "2026-01-01T00:00:00Z"
        assert remote.entries() == []


def test_there_are_none_without_a_fleet_or_without_its_link(tmp_path: Path) -> None:
    remote = RemoteEntries(str(tmp_path), FileRegistry(tmp_path / "registry"))
    assert remote.entries() == []
    with FakeLink(tmp_path).serving():
        pass
    assert remote.entries() == []
