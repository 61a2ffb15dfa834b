"""When a connection to the fleet's server must have TLS."""

from __future__ import annotations

import pytest

from synapse.link.nats_connection import Access


@pytest.mark.parametrize(
    ("server", "insecure", "demanded"),
    [
        ("tls://127.0.0.1:4222", False, True),
        ("tls://nats.example.org:4222", True, True),
        ("nats://127.0.0.1:4222", False, False),
        ("nats://ada:secret@localhost:4222", False, False),
        ("nats://[::1]:4222", False, False),
        ("nats://192.0.2.7:4222", False, True),
        ("nats://ada:secret@nats.example.org", False, True),
        ("nats://127.0.0.1.example.org:4222", False, True),
        ("nats://192.0.2.7:4222", True, False),
    ],
)
def test_nothing_goes_to_another_machine_without_tls_unless_a_person_says_so(
    server: str, insecure: bool, demanded: bool
) -> None:
    access = Access(machine="box2", servers=(server,), insecure=insecure)

    assert access.demands_tls(server) is demanded
