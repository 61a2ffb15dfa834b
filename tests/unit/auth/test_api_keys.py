"""The text of a key, its rights, and its caller."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from synapse.auth.api_keys import ApiKey, checked_actions, checked_name, compose, id_in, read_expiry
from synapse.auth.record_file import digest_of
from synapse.core.errors import InvalidRequest

NOW = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)
TEXT = compose("0123456789ab", "s" * 64)


def key(**fields: object) -> ApiKey:
    known: dict[str, object] = {"key_id": "0123456789ab", "name": "ci", "digest": digest_of(TEXT), "created_at": NOW}
    return ApiKey(**{**known, **fields})  # type: ignore[arg-type]  # the fields of a test


def test_only_the_whole_key_matches() -> None:
    assert key().matches(TEXT)
    assert not key().matches(TEXT[:-1] + "t")
    assert not key().matches(TEXT[:-1])
    assert not key().matches("")
    assert not key().matches("ключ \udcff")


def test_the_id_of_a_key_is_read_from_its_text() -> None:
    assert id_in(TEXT) == "0123456789ab"


@pytest.mark.parametrize(
    "text", ["", "sk_", "sk_0123456789ab", "sk_short_x", "pk_0123456789ab_x", "eyJ.eyJ.sig", "api_key_123"]
)
def test_other_texts_have_no_key_id(text: str) -> None:
    assert id_in(text) == ""


def test_a_key_is_a_scope_of_its_own_unless_it_was_given_another() -> None:
    assert key().caller().scope == "key:0123456789ab"
    assert key(scope="local").caller().scope == "local"
    assert not key().caller().sees("local")
    assert key(all_tasks=True).caller().sees("local")
    granted = key(actions=frozenset({"read"}), agents=frozenset({"claude"})).caller()
    assert (granted.name, granted.actions, granted.agents) == ("ci", frozenset({"read"}), frozenset({"claude"}))
    assert not granted.is_person


def test_a_key_expires_at_its_moment() -> None:
    assert not key().is_expired(NOW + timedelta(days=10_000))
    assert not key(expires_at=NOW).is_expired(NOW - timedelta(seconds=1))
    assert key(expires_at=NOW).is_expired(NOW)


def test_the_digest_is_not_shown() -> None:
    assert digest_of(TEXT) not in repr(key())


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("30d", NOW + timedelta(days=30)),
        ("12h", NOW + timedelta(hours=12)),
        ("5m", NOW + timedelta(minutes=5)),
        ("2w", NOW + timedelta(weeks=2)),
        ("2027-01-01", datetime(2027, 1, 1, tzinfo=UTC)),
        ("2027-01-01T12:00:00+02:00", datetime(2027, 1, 1, 10, tzinfo=UTC)),
        ("2027-01-01T12:00:00Z", datetime(2027, 1, 1, 12, tzinfo=UTC)),
    ],
)
def test_an_expiry_is_a_duration_a_date_or_a_time(text: str, moment: datetime) -> None:
    assert read_expiry(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "soon", "30", "-3d", "2027-13-01", "99999w99", "2026-01-15", "0d"])
def test_an_invalid_or_past_expiry_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        read_expiry(text, NOW)


@pytest.mark.parametrize("name", ["", "a b", "-x", "a/b", "x" * 65, "ü"])
def test_a_name_that_could_be_misread_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        checked_name(name)


def test_an_unknown_action_is_refused_by_name() -> None:
    assert checked_actions(["read", "send"]) == {"read", "send"}
    with pytest.raises(InvalidRequest, match="fly"):
        checked_actions(["read", "fly"])
    with pytest.raises(InvalidRequest):
        checked_actions([])
