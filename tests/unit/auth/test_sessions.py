"""Sessions of browsers: the file, how long they last, and their two secrets."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from synapse.auth.sessions import (
    LONGEST,
    SESSION_ACTIONS,
    SESSIONS_FILE,
    SessionFile,
    cookies_in,
    session_idle,
    set_cookie,
)
from synapse.core.errors import NotFound, StoreCorrupt, StoreFailed
from tests.fakes.clock import FakeClock

BOUND = 10.0
HOURS = timedelta(hours=12)
ALL = frozenset(SESSION_ACTIONS)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sessions(tmp_path: Path, clock: FakeClock) -> SessionFile:
    return SessionFile(tmp_path / "home", clock)


def use(sessions: SessionFile, session_id: str) -> None:
    marking = sessions.mark_used(session_id)
    assert marking is not None
    marking.result(BOUND)


def test_a_session_is_found_by_its_id_and_matches_both_secrets_only(sessions: SessionFile) -> None:
    session, cookie, token = sessions.create(ALL, HOURS)
    _, other_cookie, other_token = sessions.create(ALL, HOURS)

    assert sessions.find(cookie.partition(".")[0]) == session
    assert session.matches(cookie, token)
    for wrong in ((cookie, other_token), (other_cookie, token), (cookie, ""), ("", token), (token, cookie)):
        assert not session.matches(*wrong)


def test_no_secret_is_stored_or_shown(sessions: SessionFile, tmp_path: Path) -> None:
    new = sessions.create(ALL, HOURS)
    path = tmp_path / "home" / SESSIONS_FILE
    shown = path.read_text(encoding="utf-8") + repr(new) + str(new.session)

    assert path.stat().st_mode & 0o777 == 0o600
    assert new.cookie.partition(".")[2] not in shown
    assert new.token not in shown
    assert len(new.token) == len(new.cookie.partition(".")[2]) == 64


def test_its_caller_is_this_user_with_the_actions_of_the_session(sessions: SessionFile) -> None:
    session, _, _ = sessions.create(frozenset({"read"}), HOURS)
    caller = session.caller()

    assert (caller.scope, caller.sees_all, caller.name) == ("local", True, "dashboard")
    assert caller.actions == frozenset({"read"})
    assert caller.session_id == session.session_id
    assert not any((caller.is_person, caller.may_decide, caller.is_own_user, caller.key_id))


def test_a_session_ends_when_it_is_not_used(sessions: SessionFile, clock: FakeClock) -> None:
    session, _, _ = sessions.create(ALL, HOURS)

    clock.advance(HOURS.total_seconds() - 1)
    assert sessions.all() == (session,)
    clock.advance(1)
    assert sessions.find(session.session_id) is None
    assert sessions.all() == ()


def test_its_use_prolongs_it_up_to_a_week(sessions: SessionFile, clock: FakeClock) -> None:
    session, _, _ = sessions.create(ALL, HOURS)

    for _ in range(15):
        clock.advance(HOURS.total_seconds() - 3600)
        assert sessions.find(session.session_id) == session
        use(sessions, session.session_id)
    assert sessions.ends_at(session) == session.created_at + LONGEST
    clock.advance(HOURS.total_seconds() - 3600)

    assert sessions.find(session.session_id) is None


def test_a_new_session_forgets_those_that_have_ended(sessions: SessionFile, clock: FakeClock, tmp_path: Path) -> None:
    old, _, _ = sessions.create(ALL, HOURS)
    use(sessions, old.session_id)
    clock.advance(HOURS.total_seconds())

    new, _, _ = sessions.create(ALL, HOURS)

    stored = json.loads((tmp_path / "home" / SESSIONS_FILE).read_text(encoding="utf-8"))["sessions"]
    assert [row["id"] for row in stored] == [new.session_id]
    assert list((tmp_path / "home" / "sessions-used").iterdir()) == []


def test_a_revoked_session_is_gone_for_every_reader(sessions: SessionFile, tmp_path: Path, clock: FakeClock) -> None:
    first, _, _ = sessions.create(ALL, HOURS)
    second, _, _ = sessions.create(ALL, HOURS)
    reader = SessionFile(tmp_path / "home", clock)
    assert set(reader.all()) == {first, second}

    assert sessions.revoke(first.session_id) == first

    assert reader.all() == (second,)
    assert reader.find(first.session_id) is None
    with pytest.raises(NotFound, match=first.session_id):
        sessions.revoke(first.session_id)
    assert sessions.revoke_all() == (second,)
    assert reader.all() == sessions.revoke_all() == ()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_counts_for_nothing(sessions: SessionFile, tmp_path: Path, mode: int) -> None:
    session, _, _ = sessions.create(ALL, HOURS)
    path = tmp_path / "home" / SESSIONS_FILE
    path.chmod(mode)

    with pytest.raises(StoreFailed, match="other users can write"):
        SessionFile(tmp_path / "home", FakeClock()).find(session.session_id)


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"version": 2, "sessions": []}', '{"version": 1, "sessions": [{"id": "a"}]}', '{"version": 1}'],
)
def test_a_damaged_file_is_named(sessions: SessionFile, tmp_path: Path, content: str) -> None:
    sessions.create(ALL, HOURS)
    (tmp_path / "home" / SESSIONS_FILE).write_text(content, encoding="utf-8")

    with pytest.raises(StoreCorrupt, match="is not a file of sessions"):
        sessions.all()


def test_a_session_has_no_action_that_no_link_gives(sessions: SessionFile, tmp_path: Path) -> None:
    sessions.create(ALL, HOURS)
    path = tmp_path / "home" / SESSIONS_FILE
    stored = json.loads(path.read_text(encoding="utf-8"))
    stored["sessions"][0]["actions"] = ["read", "register"]
    path.write_text(json.dumps(stored), encoding="utf-8")

    assert sessions.all()[0].actions == {"read"}


@pytest.mark.parametrize(
    ("hours", "idle"), [(12.0, HOURS), (0.5, timedelta(minutes=30)), (0.0, LONGEST), (1e6, LONGEST), (1e300, LONGEST)]
)
def test_the_setting_bounds_how_long_a_session_is_idle(hours: float, idle: timedelta) -> None:
    assert session_idle(hours) == idle


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("synapse_session_80=a.b", ["a.b"]),
        ('theme="dark; x"; other={"a": 1}; synapse_session_80=a.b; more', ["a.b"]),
        ("__Host-synapse_session_80=a.b", ["a.b"]),
        ("synapse_session_80=junk; synapse_session_80=a.b", ["junk", "a.b"]),
        ("synapse_session_8000=a.b; xsynapse_session_80=a.b", []),
        ("", []),
    ],
)
def test_the_cookie_is_found_among_those_of_others(header: str, found: list[str]) -> None:
    assert cookies_in([(b"host", b"x"), (b"cookie", header.encode())], "synapse_session_80") == found


def test_a_cookie_is_for_no_script_and_for_no_other_site() -> None:
    plain = set_cookie("s", "a.b", is_secure=False)
    secure = set_cookie("s", "a.b", is_secure=True)

    assert plain == "s=a.b; Path=/dashboard; HttpOnly; SameSite=Strict; Max-Age=604800"
    assert secure == "__Host-s=a.b; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=604800"
    assert "Max-Age=0" in set_cookie("s", "", is_secure=False)
