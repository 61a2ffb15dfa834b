"""The permissions that docs/howto/fleet.md names for a NATS of others are those of the server that Synapse runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from synapse.fleet import names
from synapse.link.members import FleetMember, permissions

DOCUMENT = Path(__file__).parents[3] / "docs" / "howto" / "fleet.md"
OWN = {
    "_ENROL.*.>",
    "$KV.SYN_PRESENCE.*",
    "$KV.SYN_INCARNATION.*",
    "$KV.SYN_KEYS.*.*",
    "$JS.API.STREAM.PURGE.SYN_MAIL",
    "$JS.API.STREAM.UPDATE.SYN_MAIL",
}
"""Only for the server that Synapse runs: others have their own ways to add and remove machines."""


def rights(**role: bool) -> tuple[set[str], set[str]]:
    allowed: dict[str, Any] = permissions(FleetMember(name="ME", key="K", **role), names.JETSTREAM_API)
    return set(allowed["publish"]["allow"]), set(allowed["subscribe"]["allow"])


def test_the_document_names_exactly_the_permissions_of_each_role() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    (block,) = re.findall(r"```\n(each machine may publish.*?)```", text, flags=re.DOTALL)
    listed = [set(part.split()) for part in re.split(r"^\S.*\n", block, flags=re.MULTILINE) if part.strip()]
    publish, hear = rights()
    gateway_publish, gateway_hear = rights(is_gateway=True)
    server_publish, _ = rights(runs_server=True)

    assert listed == [
        publish,
        hear,
        gateway_publish - publish,
        gateway_hear - hear,
        server_publish - gateway_publish - OWN,
    ]
