"""What keys and sessions of another gateway's machine may do here: the ordinary, and what `fleet allow` gives it."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from synapse.auth.api_keys import KEYS, KEYS_FILE, ApiKey, Grant, KeyFile
from synapse.auth.authenticators import Credentials, KeyAuthenticator
from synapse.auth.mirror import FRESH, STALE_AFTER, Mirrored, MirrorFile, mark_fresh, mirror_folder
from synapse.auth.policy import check_action
from synapse.auth.sessions import SESSION_ACTIONS, SESSIONS, SESSIONS_FILE, SessionAuthenticator, SessionFile
from synapse.config.fleet import FleetConfig, fleet_file, save_fleet
from synapse.core.caller import ACTIONS, LOCAL_SCOPE, ORDINARY, Caller
from synapse.core.errors import Forbidden, SenderNotAccepted
from synapse.dialects.paths import DASHBOARD_PATHS
from synapse.tasks.senders import SenderRule
from tests.fakes.clock import FakeClock

ALL = frozenset(ACTIONS)
CLOCK = FakeClock()


def allow(home: Path, *actions: str) -> None:
    rules = {"box3": frozenset(actions), "box9": frozenset({"approve", "attach", "read"})}
    save_fleet(home, FleetConfig(fleet="f", machine="gate", servers=(), allow=rules))


def key_of_box3(home: Path, grant: Grant) -> tuple[ApiKey, str]:
    """Mirrors a new key of box3."""
    key, text = KeyFile(home / "box3", CLOCK).create("operator", grant)
    MirrorFile(home, KEYS_FILE, KEYS, CLOCK).write([Mirrored("box3", key)])
    mark_fresh(home)
    return key, text


def caller_with(home: Path, text: str) -> Caller:
    found = KeyAuthenticator(KeyFile(home, CLOCK), CLOCK).authenticate(Credentials([(b"x-api-key", text.encode())]))
    assert isinstance(found, Caller)
    return found


def caller_with_session_of_box3(home: Path) -> Caller:
    session, cookie, token = SessionFile(home / "box3", CLOCK).create(frozenset(SESSION_ACTIONS), timedelta(hours=1))
    MirrorFile(home, SESSIONS_FILE, SESSIONS, CLOCK).write([Mirrored("box3", session)])
    mark_fresh(home)
    headers = [(b"cookie", f"c={cookie}".encode()), (b"x-synapse-token", token.encode())]
    shown = Credentials(headers, path=DASHBOARD_PATHS)
    found = SessionAuthenticator(SessionFile(home, CLOCK), "c").authenticate(shown)
    assert isinstance(found, Caller)
    return found


def test_a_key_of_another_machine_may_do_the_ordinary_with_its_own_tasks(tmp_path: Path) -> None:
    allow(tmp_path)
    key, text = key_of_box3(tmp_path, Grant(actions=ALL, all_tasks=True))

    caller = caller_with(tmp_path, text)

    assert (caller.actions, caller.scope, caller.sees_all) == (frozenset(ORDINARY), key.caller().scope, False)
    for action in ORDINARY:
        check_action(action, caller)
    for action in ("approve", "attach", "register"):
        with pytest.raises(Forbidden):
            check_action(action, caller)
    (listed,) = KeyFile(tmp_path, CLOCK).mirrored()
    assert listed.record.actions == caller.actions


def test_a_key_without_limits_of_another_machine_may_do_the_ordinary(tmp_path: Path) -> None:
    allow(tmp_path, "approve", "attach", "read")

    _, text = key_of_box3(tmp_path, Grant())

    assert caller_with(tmp_path, text).actions == frozenset(ORDINARY)


def test_a_key_of_another_machine_may_do_no_more_than_the_key_says(tmp_path: Path) -> None:
    allow(tmp_path, "approve", "attach", "read")

    _, text = key_of_box3(tmp_path, Grant(actions=frozenset({"read", "approve"})))

    caller = caller_with(tmp_path, text)
    assert (caller.actions, caller.sees_all) == (frozenset({"read", "approve"}), False)


@pytest.mark.parametrize("action", ["approve", "attach"])
def test_a_key_of_another_machine_may_do_what_its_machine_is_allowed_here(tmp_path: Path, action: str) -> None:
    allow(tmp_path, action)

    _, text = key_of_box3(tmp_path, Grant(actions=ALL, all_tasks=True))

    caller = caller_with(tmp_path, text)
    assert (caller.actions, caller.sees_all) == (frozenset({*ORDINARY, action}), False)


def test_a_key_of_another_machine_sees_the_tasks_of_others_where_its_machine_may_read(tmp_path: Path) -> None:
    allow(tmp_path, "read")
    _, operator = key_of_box3(tmp_path, Grant(all_tasks=True))
    assert caller_with(tmp_path, operator).sees_all

    shared, _ = key_of_box3(tmp_path / "other", Grant(scope=LOCAL_SCOPE))
    MirrorFile(tmp_path, KEYS_FILE, KEYS, CLOCK).write([Mirrored("box3", shared)])
    found = KeyFile(tmp_path, CLOCK).find(shared.key_id)
    assert found is not None
    assert found.caller().scope == LOCAL_SCOPE

    allow(tmp_path, "approve")
    found = KeyFile(tmp_path, CLOCK).find(shared.key_id)
    assert found is not None
    assert found.caller().scope == f"key:{shared.key_id}"


def test_a_session_of_another_machine_may_do_the_ordinary_with_its_own_tasks(tmp_path: Path) -> None:
    allow(tmp_path)

    caller = caller_with_session_of_box3(tmp_path)

    assert caller.actions == frozenset(ORDINARY)
    assert not caller.sees(LOCAL_SCOPE)
    assert not caller.sees("key:0123456789ab")
    assert not caller.is_dashboard


@pytest.mark.parametrize("more", [(), ("attach",)])
def test_a_session_of_another_machine_is_one_of_this_machine_where_its_machine_may_read_and_approve(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    allow(tmp_path, "approve", "read", *more)

    caller = caller_with_session_of_box3(tmp_path)

    assert (caller.actions, caller.is_dashboard) == (frozenset({*ORDINARY, "approve", *more}), True)


def test_open_streams_end_when_the_right_is_taken_back(tmp_path: Path) -> None:
    allow(tmp_path, "approve", "attach", "read")
    _, text = key_of_box3(tmp_path, Grant(actions=ALL))
    callers = (caller_with(tmp_path, text), caller_with_session_of_box3(tmp_path))
    assert all(caller.holds() for caller in callers)

    allow(tmp_path)

    assert not any(caller.holds() for caller in callers)


def test_own_keys_and_sessions_keep_all_their_rights(tmp_path: Path) -> None:
    allow(tmp_path)
    key, text = KeyFile(tmp_path, CLOCK).create("operator", Grant(actions=ALL, all_tasks=True))
    session = SessionFile(tmp_path, CLOCK).create(frozenset(SESSION_ACTIONS), timedelta(hours=1)).session

    caller = caller_with(tmp_path, text)

    assert replace(caller, holds=key.caller().holds) == key.caller()
    assert SessionFile(tmp_path, CLOCK).find(session.session_id) == session
    assert session.caller().is_dashboard


@pytest.mark.parametrize("allowed", [(), ("approve", "attach", "read")])
def test_a_key_of_another_machine_has_not_the_name_of_one_here(tmp_path: Path, allowed: tuple[str, ...]) -> None:
    allow(tmp_path, *allowed)
    KeyFile(tmp_path, CLOCK).create("operator", Grant())
    vault = SenderRule("vault", "", ("key.operator",))
    open_to_box3 = SenderRule("vault", "", ("key.operator@box3",))

    _, text = key_of_box3(tmp_path, Grant())

    caller = caller_with(tmp_path, text)
    with pytest.raises(SenderNotAccepted, match=r"key\.operator@box3"):
        vault.check(None, caller, ())
    open_to_box3.check(None, caller, ())
    (listed,) = KeyFile(tmp_path, CLOCK).mirrored()
    assert (listed.machine, listed.record.name) == ("box3", "operator")


@pytest.mark.parametrize("allowed", [(), ("read",), ("approve", "attach"), ("attach", "read")])
def test_a_session_of_another_machine_is_no_person_here_unless_that_may_read_and_approve(
    tmp_path: Path, allowed: tuple[str, ...]
) -> None:
    allow(tmp_path, *allowed)

    caller = caller_with_session_of_box3(tmp_path)

    assert not caller.is_dashboard
    with pytest.raises(SenderNotAccepted):
        SenderRule("vault", "", ("key.dashboard", "person")).check(None, caller, ())
    SenderRule("vault", "", ("key.dashboard@box3",)).check(None, caller, ())


def test_a_session_of_another_machine_sees_the_tasks_of_others_where_its_machine_may_read(tmp_path: Path) -> None:
    allow(tmp_path, "read")

    caller = caller_with_session_of_box3(tmp_path)

    assert (caller.scope, caller.sees_all, caller.actions) == (LOCAL_SCOPE, True, frozenset(ORDINARY))


def test_webhooks_of_another_machines_key_are_called_however_long_the_fleet_is_away(tmp_path: Path) -> None:
    allow(tmp_path)
    key, _ = key_of_box3(tmp_path, Grant(expires_at=CLOCK.now() + timedelta(days=1)))
    clock = FakeClock()
    keys = KeyFile(tmp_path, clock)
    stale = clock.now().timestamp() - STALE_AFTER.total_seconds() - 1
    os.utime(mirror_folder(tmp_path) / FRESH, (stale, stale))

    assert keys.find(key.key_id) is None
    assert keys.is_good_for_webhooks(key.key_id)
    assert not keys.is_good_for_webhooks("0" * 12)
    clock.advance(timedelta(days=1).total_seconds())
    assert not keys.is_good_for_webhooks(key.key_id)


def test_nothing_is_allowed_while_the_file_of_the_fleet_cannot_be_read(tmp_path: Path) -> None:
    allow(tmp_path, "approve")
    _, text = key_of_box3(tmp_path, Grant(actions=ALL))

    fleet_file(tmp_path).write_text("{", encoding="utf-8")

    assert caller_with(tmp_path, text).actions == frozenset(ORDINARY)
