"""A fleet with a server of its own, one for each module of tests that asks for it, and how long tests may take."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from synapse.link.membership import NewFleet, create_fleet
from tests.fleet.own_fleet import Fleet, Hub, join
from tests.samples.ports import own_port

FOLDER = "tests/fleet/"
SECONDS = 180
"""Only for what hangs. The first test of a file also starts its machines, which counts."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives every test of this folder the time for its machines, unless it names its own."""
    for item in items:
        if FOLDER in item.path.as_posix() and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="module", name="hub")
def _hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    home = tmp_path_factory.mktemp("hub")
    new = NewFleet(machine="hub", listen=f"0.0.0.0:{own_port()}", address="127.0.0.1")
    config = create_fleet(home, home / "logs", new)
    hub = Hub(home, home / "logs", config)
    try:
        yield hub
    finally:
        hub.server.stop()


@pytest.fixture(scope="module", name="fleet")
def _fleet(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    homes = {name: tmp_path_factory.mktemp(name) for name in ("laptop", "box2", "evil", "gate")}

    async def join_all() -> None:
        for name, home in homes.items():
            await join(hub, home, name, is_gateway=name == "gate")

    asyncio.run(join_all())
    return Fleet(hub, {**homes, "hub": hub.home})
