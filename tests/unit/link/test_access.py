"""When a connection to the fleet's server must have TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.core.errors import InvalidRequest
from synapse.link.membership import join_nats
from synapse.link.nats_connection import Access, is_address


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


NO_ADDRESSES = (
    "",
    "nats://",
    "hidden@host",
    "http://u:hidden@host",
    "nats://u:hidden@host:99999",
    "nats://u:hidden@host:0",
    "nats://u:hidden@host:abc",
    "nats://u:hidd@en:w#rd@host",
    "nats://u:12#hidden@host",
    "nats://u:12/hidden@host",
    "nats://u:hidden@[::1",
)


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_what_is_no_address_of_a_server_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidRequest, match="no address of a NATS server") as refused:
        join_nats(tmp_path, text, "box2", insecure=True)

    assert "hidd" not in f"{refused.value} {refused.value.hint}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["nats://host", "tls://host:4222/", "nats://u:p@ss:word@host:1", "nats://[::1]:4222", "tls://token@host"]
)
def test_an_address_may_have_a_user_and_a_password(text: str) -> None:
    assert is_address(text)
