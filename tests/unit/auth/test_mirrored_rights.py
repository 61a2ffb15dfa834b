"""What keys and sessions of another gateway's machine may do here: the ordinary, and what `fleet allow` gives it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from synapse.auth.api_keys import KEYS, KEYS_FILE, ApiKey, Grant, KeyFile
from synapse.auth.authenticators import Credentials, KeyAuthenticator
from synapse.auth.mirror import Mirrored, MirrorFile, mark_fresh
from synapse.auth.policy import check_action
from synapse.auth.sessions import SESSION_ACTIONS, SESSIONS, SESSIONS_FILE, SessionAuthenticator, SessionFile
from synapse.config.fleet import FleetConfig, fleet_file, save_fleet
from synapse.core.caller import ACTIONS, LOCAL_SCOPE, ORDINARY, Caller
from synapse.core.errors import Forbidden
from synapse.dialects.paths import DASHBOARD_PATHS
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


def test_a_session_of_another_machine_is_one_of_this_machine_where_its_machine_may_do_all(tmp_path: Path) -> None:
    allow(tmp_path, "approve", "attach", "read")

    caller = caller_with_session_of_box3(tmp_path)

    assert (caller.actions, caller.is_dashboard) == (frozenset(SESSION_ACTIONS), True)


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


def test_a_key_may_name_agents_of_its_own_machine_with_the_machine(tmp_path: Path) -> None:
    allow(tmp_path)
    _, text = KeyFile(tmp_path, CLOCK).create("narrow", Grant(agents=frozenset({"ada@gate", "bob@box2", "eve"})))

    caller = caller_with(tmp_path, text)

    assert caller.agents == frozenset({"ada", "bob@box2", "eve"})
    assert caller.holds()


def test_nothing_is_allowed_while_the_file_of_the_fleet_cannot_be_read(tmp_path: Path) -> None:
    allow(tmp_path, "approve")
    _, text = key_of_box3(tmp_path, Grant(actions=ALL))

    fleet_file(tmp_path).write_text("{", encoding="utf-8")

    assert caller_with(tmp_path, text).actions == frozenset(ORDINARY)
