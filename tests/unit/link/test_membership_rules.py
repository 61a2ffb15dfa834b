"""Who is in a fleet, without a server: invitations, names, addresses, and what is told about clocks."""

from __future__ import annotations

import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from nats import errors as nats_errors

from synapse.config.fleet import CA_FILE, CERTIFICATE_DAYS, CERTIFICATE_FILE
from synapse.core.errors import Conflict, InvalidSettings, InvitationRefused, NameTaken, NotFound
from synapse.link import certificates
from synapse.link.enrolment import Enrolled, clock_warning
from synapse.link.machine_keys import is_public_key, new_seed, public_key
from synapse.link.members import (
    ENGINE_SUBJECTS,
    GRACE_SECONDS,
    MOST_REMOVED,
    FleetMember,
    Invited,
    Members,
    decode_members,
    encode_members,
    permissions,
)
from synapse.link.nats_connection import explain
from synapse.link.server import choose_servers, split_address

ROOT = Path(__file__).resolve().parents[3]
NOW = 1_000_000.0
HUB = FleetMember(name="hub", key="UHUB", is_gateway=True, runs_server=True)
EMPTY = Members(fleet="home", listen="0.0.0.0:4222", servers=("tls://hub:4222",), machines={"hub": HUB})
BOX2 = Invited(name="box2", key="UINV", is_gateway=False, expires_at=NOW + 600)
INVITED = EMPTY.invite(BOX2)
ENROLLED = Enrolled(fleet="home", machine="box2", servers=("tls://hub:4222",), is_gateway=False, ca="", server_time=NOW)


def test_an_invited_machine_is_enrolled_once() -> None:
    enrolled = INVITED.enrol("UINV", "UBOX2", NOW)

    assert enrolled.machines["box2"] == FleetMember(name="box2", key="UBOX2")
    with pytest.raises(InvitationRefused, match="another machine has used"):
        enrolled.enrol("UINV", "UOTHER", NOW + 1)


def test_the_same_machine_may_ask_again() -> None:
    enrolled = INVITED.enrol("UINV", "UBOX2", NOW)

    assert enrolled.enrol("UINV", "UBOX2", NOW + 1) == enrolled


@pytest.mark.parametrize("key", ["UHUB", "UINV", "UNEXT"], ids=["a machine's", "its invitation's", "an invitation's"])
def test_a_key_belongs_to_one_machine(key: str) -> None:
    members = INVITED.invite(Invited(name="box3", key="UNEXT", is_gateway=False, expires_at=NOW + 600))

    with pytest.raises(Conflict, match="belongs to another machine"):
        members.enrol("UINV", key, NOW)


def test_a_used_invitation_ends_after_a_while() -> None:
    enrolled = INVITED.enrol("UINV", "UBOX2", NOW)

    assert "UINV" in enrolled.without_expired(NOW + GRACE_SECONDS - 1).invited
    assert enrolled.without_expired(NOW + GRACE_SECONDS).invited == {}
    assert "box2" in enrolled.without_expired(NOW + GRACE_SECONDS).machines


def test_an_invitation_ends_after_ten_minutes() -> None:
    with pytest.raises(InvitationRefused, match="expired"):
        INVITED.enrol("UINV", "UBOX2", NOW + 600)
    with pytest.raises(InvitationRefused, match="expired"):
        EMPTY.enrol("UINV", "UBOX2", NOW)

    assert INVITED.without_expired(NOW + 599) is INVITED
    assert INVITED.without_expired(NOW + 600).invited == {}


def test_a_new_invitation_replaces_an_older_one_of_the_name() -> None:
    again = INVITED.invite(replace(BOX2, key="UNEW"))

    assert list(again.invited) == ["UNEW"]


def test_a_name_is_taken_by_one_machine() -> None:
    enrolled = INVITED.enrol("UINV", "UBOX2", NOW)

    with pytest.raises(NameTaken, match="'box2' already") as taken:
        enrolled.invite(replace(BOX2, key="UNEW"))
    assert "`synapse fleet remove box2` first, if it is the same machine" in taken.value.hint
    with pytest.raises(NameTaken, match="'hub' already") as own:
        EMPTY.invite(replace(BOX2, name="hub"))
    assert own.value.hint == "choose another name: the machine with this one runs the fleet's server"
    twice = replace(INVITED, machines={**EMPTY.machines, "box2": FleetMember(name="box2", key="UOTHER")})
    with pytest.raises(NameTaken):
        twice.enrol("UINV", "UBOX2", NOW)


def test_a_removed_machine_leaves_no_way_back() -> None:
    removed = INVITED.enrol("UINV", "UBOX2", NOW).remove("box2")

    assert removed == replace(EMPTY, removed=("box2",))
    assert INVITED.remove("box2") == EMPTY, "an invitation can be withdrawn"
    with pytest.raises(NotFound):
        removed.remove("box2")
    with pytest.raises(Conflict, match="runs the fleet's server") as refused:
        removed.remove("hub")
    assert refused.value.hint == "`synapse fleet leave --end-fleet` on hub ends the fleet"


def test_the_name_of_a_removed_machine_is_known_until_a_machine_has_it_again() -> None:
    removed = INVITED.enrol("UINV", "UBOX2", NOW).remove("box2")

    invited = removed.invite(replace(BOX2, key="UNEW"))

    assert invited.removed == ("box2",)
    assert invited.remove("box2").removed == ("box2",)
    assert invited.enrol("UNEW", "UBOX2", NOW).removed == ()


def test_only_the_newest_names_of_removed_machines_are_kept() -> None:
    before = tuple(f"box{number}" for number in range(100, 100 + MOST_REMOVED))
    enrolled = replace(INVITED, removed=before).enrol("UINV", "UBOX2", NOW)

    assert enrolled.remove("box2").removed == (*before[1:], "box2")


def test_the_members_are_read_as_they_were_written() -> None:
    members = replace(INVITED.enrol("UINV", "UBOX2", NOW), removed=("box3", "box4"))

    assert decode_members(encode_members(members)) == members


def test_members_of_a_version_that_has_not_kept_removed_names_are_read() -> None:
    older = encode_members(INVITED)
    del older["removed"]

    assert decode_members(older) == INVITED


def test_a_machine_may_publish_nothing_without_its_name() -> None:
    allowed = permissions(FleetMember(name="box2", key="UBOX2"))["publish"]["allow"]
    reading = (
        "synapse.engine.STREAM.INFO.",
        "synapse.engine.STREAM.MSG.GET.KV_",
        "synapse.engine.CONSUMER.CREATE.KV_",
        "synapse.engine.CONSUMER.MSG.NEXT.KV_",
    )

    assert [subject for subject in allowed if "box2" not in subject and not subject.startswith(reading)] == []


def test_what_changes_the_engine_is_imported_with_a_wildcard() -> None:
    """The server takes an answer on any other import for a request, and anybody can send one there."""
    plain = [subject for subject in ENGINE_SUBJECTS if not {"*", ">"} & set(subject.split("."))]

    assert [one for one in plain if not one.startswith(("$JS.API.STREAM.MSG.GET.", "$JS.API.INFO"))] == []


@pytest.mark.parametrize(
    ("listen", "address", "expected"),
    [
        ("127.0.0.1:4222", "", "nats://127.0.0.1:4222"),
        ("[::1]:4222", "", "nats://[::1]:4222"),
        ("192.168.1.5:4222", "", "tls://192.168.1.5:4222"),
        ("0.0.0.0:4222", "fleet.example.org", "tls://fleet.example.org:4222"),
        ("0.0.0.0:4222", "fleet.example.org:443", "tls://fleet.example.org:443"),
        ("127.0.0.1:4222", "fleet.example.org:443", "tls://fleet.example.org:443"),
        ("0.0.0.0:4222", "127.0.0.1", "tls://127.0.0.1:4222"),
    ],
)
def test_only_loopback_is_without_tls(listen: str, address: str, expected: str) -> None:
    assert choose_servers(listen, address) == (expected,)


@pytest.mark.parametrize(
    "text", ["", ":4222", "host:port", "host:70000", ",", "a,b:1", "nats://box1:4222", "a b", "::1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidSettings, match="is no address"):
        split_address(text)


@pytest.mark.parametrize(
    ("apart", "said"),
    [
        (timedelta(seconds=20), ""),
        (timedelta(days=1), "24 hours ahead of"),
        (-timedelta(days=1), "24 hours behind"),
        (timedelta(minutes=10), "10 minutes ahead of"),
    ],
)
def test_clocks_that_are_far_apart_are_told(apart: timedelta, said: str) -> None:
    warning = clock_warning(ENROLLED, NOW + apart.total_seconds())

    assert said in warning
    assert bool(warning) == bool(said)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ssl.SSLCertVerificationError(1, "certificate is not yet valid"), "check the clock"),
        (ssl.SSLCertVerificationError(1, "certificate has expired"), "check the clock"),
        (ssl.SSLCertVerificationError(1, "self-signed certificate"), "not one of this fleet"),
        (ssl.SSLError(1, "wrong version number"), "speaks no TLS"),
        (ConnectionRefusedError(), "nothing listens at hub:4222"),
        (TimeoutError(), "hub:4222 does not answer"),
        (nats_errors.Error("nats: 'Authorization Violation'"), "removed from the fleet"),
        (nats_errors.Error("nats: user authentication revoked"), "removed from the fleet"),
        (nats_errors.Error("nats: maximum connections exceeded"), "cannot be used: maximum connections exceeded"),
    ],
)
def test_every_failed_connection_has_a_sentence(error: Exception, said: str) -> None:
    assert said in explain(error, "tls://user:secret@hub:4222")
    assert "secret" not in explain(error, "tls://user:secret@hub:4222")


def test_public_keys_are_told_from_other_texts() -> None:
    seed = new_seed()
    key = public_key(seed)
    changed = key[:-1] + ("B" if key.endswith("A") else "A")

    assert is_public_key(key)
    for wrong in ("", "U", seed, changed, f"A{key[1:]}", "ü" * 56):
        assert not is_public_key(wrong), wrong
    with pytest.raises(ValueError, match="no seed"):
        public_key("SUANONSENSE")


def test_a_certificate_is_valid_for_machines_whose_clock_is_days_behind(tmp_path: Path) -> None:
    now = datetime(2026, 1, 31, tzinfo=UTC)
    certificates.make_authority(tmp_path, "home", now)
    certificates.make_server_certificate(tmp_path, now)

    assert certificates.days_left(tmp_path, now) == CERTIFICATE_DAYS
    certificate = ssl.PEM_cert_to_DER_cert((tmp_path / CERTIFICATE_FILE).read_text(encoding="ascii"))
    pin = certificates.pin_of((tmp_path / CA_FILE).read_text(encoding="ascii"))
    assert certificates.is_signed_by(certificate, pin)
    assert not certificates.is_signed_by(certificate, bytes(32))
    assert not certificates.is_signed_by(b"", pin)
    assert (tmp_path / certificates.CA_KEY).stat().st_mode & 0o077 == 0
