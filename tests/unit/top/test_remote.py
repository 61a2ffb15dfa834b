"""The overview's agents of other machines, over a fake link with real sockets."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from synapse.registry.files import FileRegistry
from synapse.top.remote import RemoteEntries
from tests.fakes.link import FakeLink
from tests.unit.top.statuses import NOW


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
        assert remote.missing(datetime(2026, 1, 1, 0, 3, tzinfo=UTC)) == ["box2 is away, last seen 3m ago: not asked"]


def test_a_link_that_has_stopped_is_named_with_the_command_that_starts_it(tmp_path: Path) -> None:
    remote = RemoteEntries(str(tmp_path), FileRegistry(tmp_path / "registry"))
    with FakeLink(tmp_path).serving() as link:
        remote.entries()
        assert remote.missing(NOW) == []
        link.kill()
        remote.entries()

    (why,) = remote.missing(NOW)
    assert why.startswith("The agents of other machines are not shown: the link of this machine does not run")
    assert "`synapse fleet start` starts it" in why


def test_there_are_none_without_a_fleet_or_without_its_link(tmp_path: Path) -> None:
    remote = RemoteEntries(str(tmp_path), FileRegistry(tmp_path / "registry"))
    assert remote.entries() == []
    with FakeLink(tmp_path).serving():
        pass
    assert remote.entries() == []
