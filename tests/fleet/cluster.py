"""Three nats-servers in a cluster on the loopback, for tests and benchmarks; their leader can be killed."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synapse.fleet import names
from tests.fleet.nats_server import NatsServer, nats_server
from tests.fleet.waiting import until
from tests.samples.ports import own_port


@dataclass(slots=True)
class Cluster:
    """Servers by their names, and the ports at which they tell about themselves."""

    servers: dict[str, NatsServer]
    monitors: dict[str, int]

    @property
    def url(self) -> str:
        return ",".join(server.url for server in self.servers.values())

    def about(self, path: str) -> list[dict[str, Any]]:
        """Returns what each server that runs tells."""
        return [
            fetch(f"http://127.0.0.1:{self.monitors[name]}/{path}")
            for name, server in self.servers.items()
            if server.process.poll() is None
        ]

    @property
    def is_formed(self) -> bool:
        """Whether all servers follow the same leader, and are ready."""
        followed = [told.get("meta_cluster", {}) for told in self.about("jsz")]
        leaders = {one.get("leader") for one in followed}
        sizes = {one.get("cluster_size") for one in followed}
        is_ready = all(one.get("status") == "ok" for one in self.about("healthz"))
        return is_ready and sizes == {3} and len(leaders) == 1 and None not in leaders

    def stream(self, name: str) -> dict[str, Any]:
        """Returns what the cluster tells of a stream; empty while it has no leader."""
        for told in self.about("jsz?accounts=true&streams=true&config=true"):
            for account in told.get("account_details", ()):
                for stream in account.get("stream_detail", ()):
                    if stream["name"] == name and stream.get("cluster", {}).get("leader"):
                        return dict(stream)
        return {}

    def clients(self, name: str) -> int:
        """Returns how many connections of clients a server has."""
        return int(fetch(f"http://127.0.0.1:{self.monitors[name]}/connz").get("num_connections", 0))

    @property
    def leader(self) -> str:
        """The server that leads the stream of the mail; empty while none does."""
        return str(self.stream(names.MAIL_STREAM).get("cluster", {}).get("leader", ""))

    def wait_formed(self) -> None:
        until(lambda: self.is_formed, "the three servers to have a leader", lambda: self.about("jsz"), 90)


@contextmanager
def three_servers(folder: Path) -> Generator[Cluster]:
    """Runs the servers, and yields when they have chosen a leader."""
    routes = {f"s{number}": own_port() for number in range(3)}
    cluster = Cluster({}, {name: own_port() for name in routes})
    with ExitStack() as ending:
        for name, port in routes.items():
            others = ", ".join(f'"nats://127.0.0.1:{other}"' for other in routes.values() if other != port)
            config = f"""
server_name: {name}
http: "127.0.0.1:{cluster.monitors[name]}"
cluster {{ name: trio, listen: "127.0.0.1:{port}", routes: [{others}] }}
"""
            place = folder / name
            place.mkdir()
            cluster.servers[name] = ending.enter_context(nats_server(place, config))
        cluster.wait_formed()
        yield cluster


def fetch(url: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            told: dict[str, Any] = json.load(answer)
            return told
    except (urllib.error.URLError, OSError):
        return {}  # it is not ready yet, or not any more
