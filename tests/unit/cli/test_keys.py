"""`synapse keys`: a key is printed once, listed without its secret, and revoked by its name."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from synapse.auth.api_keys import KEYS, KEYS_FILE, Grant, KeyFile
from synapse.auth.mirror import Mirrored, MirrorFile, mark_fresh
from synapse.config.fleet import fleet_folder
from synapse.config.process import SystemClock
from synapse.core.agent import AgentEntry
from synapse.registry.files import FileRegistry
from synapse.server.lineage import Lineage
from tests.unit.cli.conftest import Cli


def test_a_key_is_created_listed_and_revoked(synapse: Cli) -> None:
    made = synapse("keys", "create", "ci")
    assert made.code == 0
    assert made.out.startswith("sk_")
    assert made.out.count("\n") == 1, "the key alone is the result"
    assert "shown only once" in made.err

    listed = synapse("keys", "list")
    assert "ci" in listed.out
    assert made.out.strip() not in listed.out

    assert "Key 'ci' revoked." in synapse("keys", "revoke", "ci").err
    assert synapse("keys", "list", "--json").json == []


def test_a_key_of_another_machine_is_revoked_by_the_name_that_the_list_shows(synapse: Cli, home: Path) -> None:
    clock = SystemClock()
    theirs = KeyFile(home / "box1", clock)
    keys = [theirs.create(name, Grant())[0] for name in ("k1", "k2")]
    fleet_folder(home).mkdir()
    MirrorFile(home, KEYS_FILE, KEYS, clock).write(Mirrored("box1", key) for key in keys)
    mark_fresh(home)
    listed = [key["name"] for key in synapse("keys", "list", "--json").json]

    assert listed == ["k1@box1", "k2@box1"]
    assert synapse("keys", "revoke", "k1@box1").err == "Key 'k1@box1' revoked.\n"
    assert synapse("keys", "revoke", "k2@box1", "--json").json["name"] == "k2@box1"


def test_the_list_as_json_has_the_grants(synapse: Cli) -> None:
    grant = ("--agents", "claude, codex", "--actions", "read,send", "--expires", "2999-01-01")
    made = synapse("keys", "create", "ci", *grant, "--json").json
    key = made.pop("key")

    assert made["prefix"] == key[:15]
    assert made["agents"] == ["claude", "codex"]
    assert made["actions"] == ["read", "send"]
    assert made["expires"] == "2999-01-01T00:00:00Z"
    assert made["last_used"] is None
    assert made["scope"] == f"key:{key[3:15]}"
    assert synapse("keys", "list", "--json").json == [made]
    assert synapse("keys", "revoke", "ci", "--json").json == made


def test_a_new_key_has_ordinary_actions_unless_more_are_named(synapse: Cli) -> None:
    assert synapse("keys", "create", "a", "--json").json["actions"] == ["cancel", "read", "send"]
    everything = synapse("keys", "create", "b", "--actions", "all", "--json").json["actions"]
    assert everything == ["approve", "attach", "cancel", "read", "register", "send"]


def test_wider_scopes_are_asked_for_by_name(synapse: Cli) -> None:
    assert synapse("keys", "create", "a", "--scope", "local", "--json").json["scope"] == "local"
    assert synapse("keys", "create", "b", "--all-tasks", "--json").json["all_tasks"] is True
    assert synapse("keys", "create", "c", "--scope", "local", "--all-tasks").code == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("create", "a b"), 2),
        (("create", "x", "--actions", "fly"), 2),
        (("create", "x", "--expires", "soon"), 2),
        (("revoke", "nobody"), 3),
        (("create",), 2),
        ((), 2),
    ],
)
def test_mistakes_have_their_exit_codes(synapse: Cli, arguments: tuple[str, ...], code: int) -> None:
    assert synapse("keys", *arguments).code == code


def test_a_second_key_of_the_same_name_is_refused(synapse: Cli) -> None:
    synapse("keys", "create", "ci")

    refused = synapse("keys", "create", "ci")
    assert refused.code == 7
    assert "synapse keys revoke ci" in refused.err


def test_without_keys_the_list_says_what_to_type(synapse: Cli) -> None:
    assert "synapse keys create NAME" in synapse("keys", "list").err


@pytest.mark.parametrize("arguments", [("create", "mine"), ("revoke", "ci")])
def test_an_agent_may_neither_create_nor_revoke_keys(
    synapse: Cli, home: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    synapse("keys", "create", "ci")
    entry = AgentEntry("synapse-claude-8100", "claude", port=8100, pid=os.getpid(), cli_pid=os.getpid())
    FileRegistry(home / "registry").write(entry)

    assert synapse("keys", *arguments).code == 7
    assert [key["name"] for key in synapse("keys", "list", "--json").json] == ["ci"]

    monkeypatch.setenv("SYNAPSE_AGENTS_MAY_APPROVE", "1")
    assert synapse("keys", *arguments).code == 7, "an agent sets its own variables as it likes"

    (home / "config" / "synapse").mkdir(parents=True)
    (home / "config" / "synapse" / "config.toml").write_text("agents_may_approve = true", encoding="utf-8")
    assert synapse("keys", *arguments).code == 7, "an agent chooses the files that its command finds"


def test_another_settings_file_does_not_spare_the_terminal_that_the_accounts_own_demands(
    synapse: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = home / "account"
    me = list(pwd.getpwuid(os.getuid()))
    me[5] = str(account)

    def user(_uid: int) -> pwd.struct_passwd:
        return pwd.struct_passwd(me)

    monkeypatch.setattr(pwd, "getpwuid", user)
    monkeypatch.setattr("synapse.cli.person.own_lineage", Lineage)
    monkeypatch.setenv("HOME", str(home))
    assert synapse("keys", "create", "before").code == 0
    (account / ".config" / "synapse").mkdir(parents=True)
    (account / ".config" / "synapse" / "config.toml").write_text("person_proof = 'terminal'", encoding="utf-8")

    ran = synapse("keys", "create", "after")

    assert ran.code == 7
    assert "it has no terminal" in ran.err
