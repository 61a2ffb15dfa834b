"""`synapse dashboard` where another program has the gateway's usual port."""

from __future__ import annotations

import json
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.conformance.real_hosts import synapse
from tests.conformance.wire_client import WireClient

USUAL_PORT = 8000


def test_the_page_opens_at_a_free_port_where_the_usual_one_is_taken() -> None:
    with tempfile.TemporaryDirectory(prefix="sd") as folder, socket.socket() as other:
        with suppress(OSError):  # then another program of this machine has it already
            other.bind(("127.0.0.1", USUAL_PORT))
            other.listen()
        home = Path(folder)
        try:
            url: str = json.loads(synapse(home, "dashboard", "--no-open", "--json"))["url"]
            port = urlsplit(url).port
            assert port not in (None, USUAL_PORT)
            assert WireClient(port or 0).request("GET", "/").status == 200
        finally:
            synapse(home, "stop", "gateway")
