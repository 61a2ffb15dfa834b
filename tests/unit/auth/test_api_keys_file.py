"""The file of API keys: private, whole, read again when it has changed."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest

from synapse.auth.api_keys import KEYS_FILE, ApiKey, Grant, KeyFile, id_in
from synapse.core.errors import InvalidRequest, KeyNotFound, NameTaken, StoreCorrupt, StoreFailed
from tests.fakes.clock import FakeClock

BOUND = 10.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def keys(tmp_path: Path, clock: FakeClock) -> KeyFile:
    return KeyFile(tmp_path / "home", clock)


def test_a_new_key_is_found_by_its_id_and_matches_its_text(keys: KeyFile) -> None:
    key, text = keys.create("ci", Grant())

    assert keys.find(id_in(text)) == key
    assert key.matches(text)
    assert keys.find("000000000000") is None


def test_all_rights_of_a_key_are_stored(keys: KeyFile, tmp_path: Path, clock: FakeClock) -> None:
    grant = Grant(
        actions=frozenset({"read", "send"}),
        agents=frozenset({"claude"}),
        expires_at=clock.now() + timedelta(days=1),
        scope="local",
        all_tasks=True,
    )
    key, _ = keys.create("ci", grant)

    assert KeyFile(tmp_path / "home", clock).all() == (key,)
    assert (key.actions, key.agents, key.expires_at) == (grant.actions, grant.agents, grant.expires_at)
    assert (key.scope, key.all_tasks) == ("local", True)


def test_the_file_is_private_and_does_not_have_the_key(keys: KeyFile, tmp_path: Path) -> None:
    _, text = keys.create("ci", Grant())
    path = tmp_path / "home" / KEYS_FILE

    assert path.stat().st_mode & 0o777 == 0o600
    assert text not in path.read_text(encoding="utf-8")
    assert text.rpartition("_")[2] not in path.read_text(encoding="utf-8")


def test_changes_by_another_process_count_at_once(keys: KeyFile, tmp_path: Path, clock: FakeClock) -> None:
    running = KeyFile(tmp_path / "home", clock)
    assert running.all() == ()

    key, _ = keys.create("ci", Grant())
    assert running.find(key.key_id) == key

    keys.revoke("ci")
    assert running.find(key.key_id) is None


def test_a_name_can_be_used_again_after_a_revocation(keys: KeyFile) -> None:
    first, _ = keys.create("ci", Grant())
    with pytest.raises(NameTaken):
        keys.create("ci", Grant())

    keys.revoke("ci")
    second, _ = keys.create("ci", Grant())
    assert second.key_id != first.key_id


def test_an_unknown_key_cannot_be_revoked(keys: KeyFile) -> None:
    with pytest.raises(KeyNotFound):
        keys.revoke("ci")


def test_an_invalid_name_creates_no_key(keys: KeyFile) -> None:
    with pytest.raises(InvalidRequest):
        keys.create("a b", Grant())
    assert keys.all() == ()


def test_concurrent_processes_lose_no_key(keys: KeyFile, tmp_path: Path, clock: FakeClock) -> None:
    def make(number: int) -> None:
        KeyFile(tmp_path / "home", clock).create(f"key-{number}", Grant())

    makers = [Thread(target=make, args=(number,)) for number in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(10)

    assert {key.name for key in keys.all()} == {f"key-{number}" for number in range(8)}


def test_the_last_use_is_recorded_at_intervals(keys: KeyFile, clock: FakeClock) -> None:
    key, _ = keys.create("ci", Grant())
    assert keys.last_used(key.key_id) is None

    mark_used(keys, key)
    first = keys.last_used(key.key_id)
    assert first == clock.now()

    clock.advance(10)
    assert keys.mark_used(key.key_id) is None
    assert keys.last_used(key.key_id) == first
    clock.advance(30)
    mark_used(keys, key)
    assert keys.last_used(key.key_id) == clock.now()

    keys.revoke("ci")
    assert keys.last_used(key.key_id) is None


def mark_used(keys: KeyFile, key: ApiKey) -> None:
    """Wait until the use is written down."""
    marking = keys.mark_used(key.key_id)
    assert marking is not None
    marking.result(BOUND)


def test_a_use_that_cannot_be_recorded_is_no_error(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "keys-used").write_text("in the way", encoding="utf-8")

    marking = KeyFile(tmp_path, clock).mark_used("0123456789ab")

    assert marking is not None
    assert marking.exception(BOUND) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "keys": []}',
        '{"version": 1, "keys": [{}]}',
        '{"version": 1, "keys": 5}',
        "[" * 100_000,
    ],
)
def test_a_broken_file_admits_no_caller(keys: KeyFile, tmp_path: Path, content: str) -> None:
    keys.create("ci", Grant())
    (tmp_path / "home" / KEYS_FILE).write_text(content, encoding="utf-8")

    with pytest.raises(StoreCorrupt):
        keys.find("0123456789ab")


@pytest.mark.parametrize(
    ("field", "value"),
    [("actions", ["fly"]), ("actions", "read"), ("agents", [5]), ("name", 5), ("created", "soon"), ("id", None)],
)
def test_a_key_with_an_invalid_field_is_refused(keys: KeyFile, tmp_path: Path, field: str, value: object) -> None:
    keys.create("ci", Grant())
    path = tmp_path / "home" / KEYS_FILE
    document = json.loads(path.read_text(encoding="utf-8"))
    document["keys"][0][field] = value
    path.write_text(json.dumps(document), encoding="utf-8")

    with pytest.raises(StoreCorrupt):
        keys.all()


def test_a_file_that_others_can_write_is_not_trusted(keys: KeyFile, tmp_path: Path, clock: FakeClock) -> None:
    keys.create("ci", Grant())
    (tmp_path / "home" / KEYS_FILE).chmod(0o666)

    with pytest.raises(StoreFailed, match="other users can write"):
        KeyFile(tmp_path / "home", clock).all()


def test_an_unusable_folder_is_named(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(StoreFailed, match="file"):
        KeyFile(tmp_path / "file", clock).create("ci", Grant())
    with pytest.raises(StoreFailed, match="file"):
        KeyFile(tmp_path / "file", clock).all()


def test_no_draft_is_left_behind(keys: KeyFile, tmp_path: Path) -> None:
    keys.create("ci", Grant())

    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == [f".{KEYS_FILE}.lock", KEYS_FILE]


@pytest.mark.parametrize("set_by", ["{}", "{}@gate"])
def test_a_key_that_has_expired_is_not_good_for_webhooks(keys: KeyFile, clock: FakeClock, set_by: str) -> None:
    key, _ = keys.create("short", Grant(expires_at=clock.now() + timedelta(minutes=5)))
    assert keys.is_good_for_webhooks(set_by.format(key.key_id))

    clock.advance(301)

    assert not keys.is_good_for_webhooks(set_by.format(key.key_id))
