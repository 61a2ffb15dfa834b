"""`synapse fleet`: what it prints, what it refuses, and who may change a fleet. tests/fleet runs it for real."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from synapse.cli.fleet import SUMMARIES
from synapse.config.fleet import FleetConfig, fleet_folder, load_fleet, save_fleet
from synapse.config.process import SystemClock
from synapse.core.agent import AgentEntry
from synapse.fleet.bus import KEY_REFUSED
from synapse.fleet.relay_io import OutboxState
from synapse.link.database import LinkDatabase
from synapse.link.machine_keys import new_seed
from synapse.link.members import FleetMember, Members
from synapse.link.membership import default_machine_name
from synapse.link.server import FleetServer
from synapse.registry.files import FileRegistry, start_time
from tests.fakes.clock import FakeClock
from tests.fakes.link import FakeLink
from tests.unit.cli.conftest import Cli
from tests.unit.link.test_database import ROW

LAPTOP = FleetConfig(fleet="home", machine="laptop", servers=("tls://127.0.0.1:1",))
CHANGES = [
    ("create",),
    ("invite", "box2"),
    ("join", "synapse-fleet-1:e30"),
    ("join", "nats://127.0.0.1:1", "--as", "box2"),
    ("allow", "box2", "approve"),
    ("leave",),
    ("remove", "box2"),
    ("start",),
    ("stop",),
]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server listens in these tests, and nothing comes of waiting for one."""
    monkeypatch.setattr("synapse.cli.fleet_doctor.CONNECT_SECONDS", 0.3)


@pytest.fixture(name="link")
def _link(home: Path) -> Iterator[FakeLink]:
    with FakeLink(home).serving() as link:
        yield link


def test_the_help_names_every_action_and_the_name_that_a_machine_gets(synapse: Cli) -> None:
    line = next(line for line in synapse("help").out.splitlines() if line.startswith("  fleet "))

    assert line.partition("connect machines: ")[2].split(", ") == list(SUMMARIES)
    assert "default: its host name; an invitation has its own" in " ".join(
        synapse("fleet", "join", "--help").out.split()
    )


@pytest.mark.parametrize("arguments", CHANGES)
def test_an_agent_may_not_change_the_fleet(synapse: Cli, home: Path, arguments: tuple[str, ...]) -> None:
    save_fleet(home, LAPTOP)
    entry = AgentEntry("synapse-claude-8100", "claude", port=8100, pid=os.getpid(), cli_pid=os.getpid())
    FileRegistry(home / "registry").write(entry)

    refused = synapse("fleet", *arguments, "--json")

    assert refused.code == 7
    assert refused.json["error"]["code"] == "person_required"
    assert load_fleet(home) == LAPTOP


@pytest.mark.parametrize(
    "arguments", [("status",), ("outbox",), ("allow", "box2", "read"), ("leave",), ("doctor",), ("invite", "box2")]
)
def test_without_a_fleet_it_says_how_to_get_one(synapse: Cli, arguments: tuple[str, ...]) -> None:
    refused = synapse("fleet", *arguments, "--json")

    assert refused.code == 7
    assert refused.json["error"]["code"] == "not_in_fleet"
    assert "synapse fleet create" in refused.json["error"]["hint"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("create", "--name", "Not a name"), 2, "cannot name a machine"),
        (("create", "--name", "hub", "--fleet", "my fleet"), 2, "cannot name a fleet"),
        (("create", "--name", "hub", "--listen", "nonsense:x"), 2, "is no address"),
        (("create", "--name", "hub", "--listen", "127.0.0.1:0", "--address", ","), 2, "',' is no address"),
        (("create", "--name", "hub", "--listen", "192.0.2.1:4222"), 2, "--listen takes an address of this machine"),
        (("join", "hello"), 2, "not a whole invitation"),
        (("join", "box1:4222"), 2, "the address of a NATS server begins with nats:// or tls://"),
        (("join", "box1.example.org"), 2, "the address of a NATS server begins with nats:// or tls://"),
        (("join", "http://example.org", "--as", "box2"), 2, "no address of a NATS server"),
        (("join", "nats://127.0.0.1:1", "--as", "box2", "--creds", "missing.creds"), 2, "there is no file"),
        (
            ("join", "nats://127.0.0.1:1", "--as", "box2"),
            8,
            "is the fleet's server running?\ncheck the address, the network and the credentials; --ca FILE names",
        ),
        (("join", "synapse-fleet-1:e30", "--as", "box2"), 2, "--as is for a NATS server"),
        (("join", "synapse-fleet-1:e30", "--gateway"), 2, "`synapse fleet invite NAME --gateway` makes one"),
        ((), 2, "ACTION"),
        (("fly",), 2, "fly"),
    ],
)
def test_mistakes_are_told_in_words(synapse: Cli, home: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    ran = synapse("fleet", *arguments)

    assert ran.code == code
    assert said in ran.err
    assert load_fleet(home) is None


def test_a_machine_in_a_fleet_joins_no_other(synapse: Cli, home: Path) -> None:
    save_fleet(home, LAPTOP)

    for arguments in (("create", "--name", "hub"), ("join", "synapse-fleet-1:e30")):
        refused = synapse("fleet", *arguments)
        assert refused.code == 7
        assert "'laptop' in the fleet 'home' already" in refused.err
        assert "synapse fleet leave" in refused.err


@pytest.mark.parametrize("arguments", [("invite", "box2"), ("remove", "box2")])
def test_only_the_machine_with_the_server_decides_who_is_in(
    synapse: Cli, home: Path, arguments: tuple[str, ...]
) -> None:
    save_fleet(home, LAPTOP)
    (home / "fleet" / "machine.nk").write_text("a key of its own", encoding="utf-8")

    refused = synapse("fleet", *arguments)

    assert refused.code == 7
    assert "where `synapse fleet create` was run" in refused.err


@pytest.mark.parametrize("command", [("fleet", "join", "synapse-fleet-1:e30"), ("link",)])
def test_a_missing_package_is_told_how_to_install_it(
    synapse: Cli, home: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "nats", None)
    monkeypatch.setitem(sys.modules, "synapse.link.nats_bus", None)  # another test may have loaded it
    if command == ("link",):
        save_fleet(home, LAPTOP)

    refused = synapse(*command)

    assert refused.code == 3
    assert "pip install 'synapse-a2a[fleet]'" in refused.err


def test_allowing_more_to_a_machine_counts_in_its_file(synapse: Cli, home: Path) -> None:
    save_fleet(home, LAPTOP)

    assert synapse("fleet", "allow", "box2", "approve, attach", "--json").json == {
        "machine": "box2",
        "actions": ["approve", "attach"],
    }
    changed = load_fleet(home)
    assert changed is not None
    assert changed.allowed("box2") == {"approve", "attach"}

    assert synapse("fleet", "allow", "box2", "none").code == 0
    assert load_fleet(home) == LAPTOP


@pytest.mark.parametrize("arguments", [("box2", "fly"), ("laptop", "approve"), ("codex@box2", "approve")])
def test_what_cannot_be_allowed_is_refused(synapse: Cli, home: Path, arguments: tuple[str, ...]) -> None:
    save_fleet(home, LAPTOP)

    assert synapse("fleet", "allow", *arguments).code == 2
    assert load_fleet(home) == LAPTOP


@pytest.mark.parametrize("actions", ["", ",", " , "])
def test_rights_are_taken_back_by_a_word_and_not_by_naming_none(synapse: Cli, home: Path, actions: str) -> None:
    config = replace(LAPTOP, allow={"box2": frozenset({"approve"})})
    save_fleet(home, config)

    refused = synapse("fleet", "allow", "box2", actions)

    assert refused.code == 2
    assert "`none` takes all rights back" in refused.err
    assert load_fleet(home) == config


def test_allowing_more_to_a_machine_that_the_fleet_does_not_have_is_done_with_a_warning(
    synapse: Cli, link: FakeLink
) -> None:
    link.join("box2")

    known, unknown = synapse("fleet", "allow", "box2", "read"), synapse("fleet", "allow", "bxo2", "read")
    taken_back = synapse("fleet", "allow", "bxo2", "none")
    link.status = {"connected": False}
    uncertain = synapse("fleet", "allow", "box9", "read", "--json")

    assert (known.code, unknown.code, taken_back.code) == (0, 0, 0)
    assert "Warning" not in known.err + taken_back.err
    assert unknown.err.splitlines()[1] == (
        "Warning: the fleet has no machine 'bxo2' now; this counts when it joins  (synapse fleet status)"
    )
    assert uncertain.json == {"machine": "box9", "actions": ["read"]}


def test_taking_back_what_a_machine_never_had_is_said(synapse: Cli, link: FakeLink) -> None:
    link.join("box2")
    synapse("fleet", "allow", "box2", "read")

    taken_back, nothing, unknown = (synapse("fleet", "allow", name, "none") for name in ("box2", "box2", "bxo2"))

    assert taken_back.err == "box2 may send, and read and cancel what it has sent.\n"
    assert nothing.err == "box2 had no extra rights here.\n"
    assert unknown.err.splitlines() == [
        "bxo2 had no extra rights here.",
        "Warning: the fleet has no machine 'bxo2' now  (synapse fleet status)",
    ]


def test_the_status_names_rights_that_wait_for_a_machine_of_that_name(synapse: Cli, link: FakeLink) -> None:
    link.join("box2")
    for name in ("box2", "lpatop"):
        synapse("fleet", "allow", name, "attach")

    known = synapse("fleet", "status")
    link.status = {"machines_unknown": "the bucket has no leader"}
    unknown = synapse("fleet", "status")

    line = "lpatop is not in the fleet, but would get attach"
    assert [one for one in known.out.splitlines() if "would get" in one] == [line]
    assert "would get" not in unknown.out


def test_who_stops_the_server_is_told_what_that_means(synapse: Cli, home: Path) -> None:
    said = "The fleet's server is stopped too: no machine reaches another until `synapse fleet start` here."

    save_fleet(home, LAPTOP)
    assert synapse("fleet", "stop").err == "The link did not run.\n"
    save_fleet(home, replace(LAPTOP, runs_server=True))
    assert synapse("fleet", "stop").err == "The link did not run, and neither did the fleet's server.\n"
    server = home / "fleet" / "server"
    server.mkdir()
    with subprocess.Popen(["sleep", "60"]) as running:
        told = {"pid": running.pid, "started": start_time(running.pid)}
        (server / "process.json").write_text(json.dumps(told), encoding="utf-8")
        stopped = synapse("fleet", "stop")
    assert stopped.err == f"The link did not run.\n{said}\n"


def test_the_status_shows_the_machines_and_what_they_may_do_here(synapse: Cli, link: FakeLink) -> None:
    link.join("box2")
    link.join("box3")
    link.away["box3"] = "2020-01-01T00:00:00Z"
    link.status = {
        "server": "hub:4222",
        "outbox": {"open": 2, "oldest": "2020-01-01T00:00:00Z"},
        "notes": ["2020-01-01T00:00:00Z box2 has another version"],
    }
    synapse("fleet", "allow", "box2", "read")

    shown = synapse("fleet", "status")

    assert shown.code == 0
    assert "laptop in the fleet 'home': connected to hub:4222" in shown.out
    rows = [line.split() for line in shown.out.splitlines()[2:5]]
    assert [row[0] for row in rows] == ["laptop", "box2", "box3"]
    assert rows[0][1:3] == ["this", "machine"]
    assert "away" in shown.out
    assert "read" in shown.out
    assert "2 messages wait in the outbox, the oldest sent 2020-01-01." in shown.out
    assert "2020-01-01: box2 has another version" in shown.err
    assert synapse("fleet", "status", "--json").json["connected"] is True
    link.status = {"outbox": {"open": 1, "oldest": "2020-01-01T00:00:00Z"}}
    assert "1 message waits in the outbox, sent 2020-01-01." in synapse("fleet", "status").out
    assert "% full" not in shown.out


def test_the_status_names_the_gateways(synapse: Cli, link: FakeLink) -> None:
    for name in ("box2", "box3", "box4"):
        link.join(name)
    link.away["box4"] = "2020-01-01T00:00:00Z"
    link.gateways.add("box2")
    link.status = {"is_gateway": True}

    title, *rows = synapse("fleet", "status").out.splitlines()[1:6]

    column = title.index("GATEWAY")
    assert [row[column:].split()[0] for row in rows] == ["yes", "yes", "no", "-"], "nobody knows of one that is away"


def test_the_status_and_the_doctor_say_when_the_outbox_is_nearly_full(synapse: Cli, link: FakeLink) -> None:
    told = {"open": 930, "oldest": "2020-01-01T00:00:00Z", "percent": 93, "nearest": "930 of 1000 messages to box2"}
    link.status = {"outbox": told}

    shown = synapse("fleet", "status")
    nearly = synapse("fleet", "doctor")
    link.status = {"outbox": {**told, "percent": 100}}
    full = synapse("fleet", "doctor")

    assert "The outbox is 93 % full: 930 of 1000 messages to box2." in shown.out
    assert "it is 93 % full: 930 of 1000 messages to box2" in nearly.out
    assert "it is 100 % full" in full.out


def test_an_old_message_is_a_problem_only_if_its_machine_is_present(synapse: Cli, link: FakeLink) -> None:
    link.join("box2")
    link.join("box3")
    link.away["box3"] = "2020-01-01T00:00:00Z"
    now = SystemClock().now()
    old, new = (now - timedelta(hours=3, minutes=1)).isoformat(), now.isoformat()
    waiting = [{"to": "box2", "open": 1, "oldest": old}, {"to": "box3", "open": 2, "oldest": old}]
    link.status = {"outbox": {"open": 3, "waiting": waiting}}

    found = [one[:2] for one in findings(synapse, "outbox")]
    link.status = {"outbox": {"open": 1, "waiting": [{"to": "box2", "open": 1, "oldest": new}]}}
    fresh = [one[:2] for one in findings(synapse, "outbox")]
    link.status = {"connected": False, "machines": [], "outbox": {"open": 3, "waiting": waiting}}
    unknown = [one[:2] for one in findings(synapse, "outbox")]

    assert found == [
        ("problem", "1 message waits for box2, though it is present, for 3h"),
        ("note", "2 messages wait for box3 (it is not present), the oldest for 3h"),
    ]
    assert fresh == [("ok", "1 message waits")]
    assert unknown == [
        ("note", "1 message waits for box2, for 3h"),
        ("note", "2 messages wait for box3, the oldest for 3h"),
    ]


def test_a_link_of_another_version_is_a_note_with_the_command_that_restarts_it(synapse: Cli, link: FakeLink) -> None:
    link.status = {"version": "0.0.1"}

    [(level, text, advice)] = findings(synapse, "link")

    assert (level, text.partition(",")[0]) == ("note", "it runs version 0.0.1")
    assert advice == "synapse fleet stop && synapse fleet start"


def findings(synapse: Cli, subject: str) -> list[tuple[str, str, str]]:
    found = synapse("fleet", "doctor", "--json").json["findings"]
    return [(one["level"], one["text"], one["advice"]) for one in found if one["subject"] == subject]


def test_the_doctor_names_the_machines_whose_logs_have_gaps(synapse: Cli, link: FakeLink) -> None:
    link.join("box2")
    link.join("box3")
    link.join("box4")
    link.away["box3"] = "2020-01-01T00:00:00Z"
    since = (SystemClock().now() - timedelta(hours=3, minutes=1)).isoformat()
    gap = {"incomplete": "its batches do not follow each other", "incomplete_since": since}
    whole = {"machine": "box4", "incomplete": "", "incomplete_since": ""}
    link.status = {"replica": {"machines": [{"machine": "box2", **gap}, {"machine": "box3", **gap}, whole]}}

    found = findings(synapse, "chain")
    link.status = {"replica": {"machines": [whole]}}
    complete = findings(synapse, "chain")
    link.status = {"replica": {"problem": "no space left", "machines": []}}
    unwritten = findings(synapse, "chain")
    link.status = {"replica": None}

    assert found == [
        (
            "problem",
            "the log of box2 has been incomplete here for 3h: its batches do not follow each other",
            "it is asked again every minute; if that does not help, `synapse fleet doctor` on box2",
        ),
        (
            "note",
            "the log of box3 (it is not present) may have been incomplete here for 3h",
            "its link is asked for the rest when it is back",
        ),
    ]
    assert complete == [("ok", "the log of 1 other machine is complete here; box2 has sent nothing yet", "")]
    assert [one[:2] for one in unwritten] == [
        ("problem", "the replica of other machines' logs is not written: no space left")
    ]
    assert findings(synapse, "chain") == []


def test_the_doctor_names_the_gateways_that_publish_the_same_keys(synapse: Cli, link: FakeLink) -> None:
    twice = [("key", "00000000000a"), ("key", "00000000000b"), ("session", "00000000000c")]
    shared = [{"kind": kind, "id": one, "machines": ["box3", "box5"]} for kind, one in twice]
    link.status = {"keys": {"keys": 4, "sessions": 1, "problem": "", "shared": shared}}
    [(level, text, advice)] = findings(synapse, "keys")
    link.status = {"keys": {"keys": 4, "sessions": 1, "problem": "", "shared": []}}

    assert level == "problem"
    assert text.startswith("box3 and box5 publish the same 2 keys and 1 session")
    assert "00000000000a, 00000000000b, 00000000000c" in text
    assert "delete `keys.json` and `sessions.json` in the state folder of the copy" in advice
    assert findings(synapse, "keys") == []


def test_the_doctor_speaks_only_of_logs_that_can_be_complete(synapse: Cli, link: FakeLink) -> None:
    since = (SystemClock().now() - timedelta(hours=3, minutes=1)).isoformat()
    gap = {"incomplete": "its batches do not follow each other", "incomplete_since": since}
    whole = {"incomplete": "", "incomplete_since": ""}
    here = {"present": True, "since": since, "ships_log": True}
    removed, kept = {"machine": "box4", **gap}, {"machine": "box3", **gap}
    machines = [{"name": "box2", **here}, {"name": "box3", **here, "ships_log": False}]
    link.status = {"machines": machines, "replica": {"machines": [{"machine": "box2", **whole}, kept, removed]}}

    found = findings(synapse, "chain")
    link.status = {"machines": machines[:1], "replica": {"machines": [removed]}}
    nothing = findings(synapse, "chain")
    link.status = {"machines": [], "replica": {"machines": []}}
    alone = findings(synapse, "chain")
    link.status = {"machines": [], "machines_unknown": "no leader", "replica": {"machines": [removed]}}
    unknown = [one[:2] for one in findings(synapse, "chain")]

    assert found == [
        ("note", "box3 keeps its log; what it sent before stays here", ""),
        ("ok", "the log of 1 other machine is complete here", ""),
    ]
    assert nothing == [("ok", "box2 has sent nothing yet", "")]
    assert alone == [("ok", "no other machine has sent a log", "")]
    assert unknown == [("note", "the log of box4 (it is not present) may have been incomplete here for 3h")]


def test_the_status_names_machines_that_keep_their_logs(synapse: Cli, link: FakeLink) -> None:
    link.join("box2")
    shipped = synapse("fleet", "status")
    link.status = {"ship_log": False, "machines": [{"name": "box2", "present": False, "ships_log": False}]}

    kept = synapse("fleet", "status")

    assert "keeps its log" not in shipped.out
    assert "laptop keeps its log: gateways get nothing new of it.\n" in kept.out
    assert "box2 keeps its log: gateways get nothing new of it.\n" in kept.out


def test_the_status_without_connection_says_why(synapse: Cli, link: FakeLink) -> None:
    link.status = {"connected": False, "problem": "nothing listens at hub:4222"}

    shown = synapse("fleet", "status")

    assert "not connected: nothing listens at hub:4222" in shown.out


def test_the_doctor_without_connection_says_nothing_of_other_machines(synapse: Cli, link: FakeLink) -> None:
    link.status = {"connected": False, "machines": [], "outbox": {"open": 1}}

    found = synapse("fleet", "doctor")

    assert "· link         it runs, and tries to connect\n" in found.out
    assert "✓ outbox       1 message waits\n" in found.out
    assert "versions" not in found.out
    assert "→ `synapse fleet doctor` on the server's machine" in found.out


def test_the_doctor_does_not_advise_a_start_while_another_program_has_the_port(synapse: Cli, home: Path) -> None:
    save_fleet(home, replace(LAPTOP, runs_server=True))
    (home / "fleet" / "machine.nk").write_text(f"{new_seed()}\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        me = FleetMember(name="laptop", key="ULAPTOP", runs_server=True)
        members = Members(fleet="home", listen=listen, servers=(f"nats://{listen}",), machines={"laptop": me})
        FleetServer(home, home / "logs").create(members)

        taken = findings(synapse, "server"), findings(synapse, "connection")[0][2]
        started = synapse("fleet", "start")
    free = findings(synapse, "server")
    (home / "fleet" / "server" / "nats.conf").write_text("{}", encoding="utf-8")
    [disk] = findings(synapse, "disk")

    [(level, text, advice)], connection = taken
    assert (level, f"another program listens on {listen}" in text) == ("problem", True), text
    assert "`lsof -i :" in advice
    assert connection == "see `server` above"
    assert started.err.startswith(
        f"Error: another program listens on {listen}, the address of the fleet's NATS server\n"
    )
    assert started.err.endswith("end it, then `synapse fleet start`\n")
    assert free == [("problem", "the fleet's NATS server does not run", "synapse fleet start")]
    assert disk[2] == "synapse fleet stop && synapse fleet start"


def test_a_link_that_does_not_run_is_told(synapse: Cli, home: Path) -> None:
    save_fleet(home, LAPTOP)

    refused = synapse("fleet", "status")

    assert refused.code == 8
    assert "does not run" in refused.err


def test_a_link_that_has_ended_is_told_with_its_reason(synapse: Cli, home: Path) -> None:
    save_fleet(home, LAPTOP)
    log, output = home / "logs" / "synapse-link.log", home / "logs" / "synapse-link.out"
    log.parent.mkdir(exist_ok=True)
    log.write_text("{}\n", encoding="utf-8")
    error = {"code": "conflict", "message": "another link runs under the name laptop", "hint": "the disk was copied?"}
    output.write_text(json.dumps({"error": error}) + "\n", encoding="utf-8")

    shown, found = synapse("fleet", "status"), synapse("fleet", "doctor")
    os.utime(output, (0, 0))
    later = synapse("fleet", "status")

    reason = "the link of this machine has ended: another link runs under the name laptop"
    assert (shown.code, shown.err) == (8, f"Error: {reason}\nthe disk was copied?\n")
    assert reason in found.out
    assert reason not in later.err


def test_the_outbox_lists_messages_and_takes_one_back(synapse: Cli, link: FakeLink) -> None:
    assert synapse("fleet", "outbox").err == "No message to another machine waits.  (--all lists those of eight days)\n"
    link.messages = [
        {
            "message_id": "m1",
            "task_id": "1a2b3c4d5e",
            "to": "box2",
            "target": "codex@box2",
            "kind": "send",
            "state": "open",
            "created_at": "2020-01-01T00:00:00Z",
            "expires_at": "2020-01-02T00:00:00Z",
            "attempts": 3,
            "why": "box2 is away",
        }
    ]

    link.messages.append({**link.messages[0], "message_id": "m2", "target": "old@box2", "state": "settled"})

    listed = synapse("fleet", "outbox")
    assert "codex@box2" in listed.out
    assert "old@box2" not in listed.out
    assert "box2 is away" in listed.out
    assert synapse("fleet", "outbox", "--json").json["messages"] == link.messages
    assert synapse("fleet", "outbox", "--cancel", "1a2b3c4d5e", "--json").json["state"] == "void"
    assert "codex@box2: taken back" in synapse("fleet", "outbox", "--cancel", "1a2b3c4d5e").err


@pytest.mark.parametrize(
    ("state", "meaning", "next_step"),
    [
        ("accepted", "box2 has taken it", "`synapse cancel 1a2b3c4d` cancels its task"),
        ("settled", "its task has ended", "`synapse status 1a2b3c4d` shows how"),
        ("refused", "no agent has got it (the machine is away)", "send it again if it is still wanted"),
        ("uncertain", "it may have arrived (the machine is away)", "look at codex@box2"),
        ("later", "it cannot be taken back (the machine is away)", "synapse fleet outbox"),
    ],
)
def test_a_message_that_cannot_be_taken_back_is_an_error_that_says_why(
    synapse: Cli, link: FakeLink, state: str, meaning: str, next_step: str
) -> None:
    row = {"task_id": "1a2b3c4d5e", "to": "box2", "target": "codex@box2", "kind": "send", "state": state}
    link.messages = [row if state in ("accepted", "settled") else {**row, "why": "the machine is away"}]

    refused = synapse("fleet", "outbox", "--cancel", "1a2b3c4d5e")
    as_json = synapse("fleet", "outbox", "--cancel", "1a2b3c4d5e", "--json")

    assert (refused.code, as_json.code) == (7, 7)
    assert refused.err.startswith(f"Error: message 1a2b3c4d to codex@box2 is {state}: {meaning}\n")
    assert next_step in refused.err
    assert as_json.json["error"]["code"] == "task_not_cancelable"
    assert next_step in as_json.json["error"]["hint"]


def test_a_message_that_was_taken_back_can_be_taken_back_again(synapse: Cli, link: FakeLink) -> None:
    link.messages = [{"task_id": "1a2b3c4d5e", "to": "box2", "target": "codex@box2", "kind": "void", "state": "void"}]

    assert synapse("fleet", "outbox", "--cancel", "1a2b3c4d5e").code == 0


@pytest.mark.parametrize(
    ("status", "away", "why"),
    [
        ({}, False, "box2 has not taken it yet"),
        ({}, True, "box2 is away"),
        ({"connected": False, "machines": []}, True, "this machine has no connection"),
    ],
)
def test_a_message_that_waits_is_listed_with_the_reason(
    synapse: Cli, link: FakeLink, status: dict[str, Any], away: bool, why: str
) -> None:
    link.join("box2")
    link.status = status
    if away:
        link.away["box2"] = "2020-01-01T00:00:00Z"
    row = {"task_id": "1a2b3c4d5e", "to": "box2", "target": "codex@box2", "kind": "send", "why": ""}
    link.messages = [{**row, "state": "open"}, {**row, "state": "settled"}]

    told = synapse("fleet", "outbox", "--json").json["messages"]

    assert [message["why"] for message in told] == [why, ""]
    assert why in synapse("fleet", "outbox").out


def message(target: str, state: str, *, kind: str = "send", why: str = "", hours: int = 0) -> dict[str, Any]:
    """Returns a row of the outbox that has been in its state for so many hours."""
    now = SystemClock().now()
    return {
        "task_id": target,
        "to": "box2",
        "target": f"{target}@box2",
        "kind": kind,
        "state": state,
        "why": why,
        "created_at": (now - timedelta(hours=hours)).isoformat(),
        "changed_at": (now - timedelta(hours=hours)).isoformat(),
        "expires_at": (now + timedelta(days=7, minutes=1)).isoformat(),
        "attempts": 1,
    }


def test_the_outbox_lists_what_is_open_and_what_came_to_nothing_today(synapse: Cli, link: FakeLink) -> None:
    link.join("box2")
    link.away["box2"] = "2020-01-01T00:00:00Z"
    link.messages = [
        message("nobody", "refused", why="on box2: no such agent"),
        message("gone", "void", kind="void", why="canceled"),
        message("late", "void", kind="void", why="expired"),
        message("doubt", "uncertain", why="lost"),
        message("taken", "accepted"),
        message("done", "settled"),
        message("old", "uncertain", why="lost", hours=25),
        message("older", "refused", why="x", hours=50),
        message("back", "open", kind="void", why="canceled", hours=50),
        message("kept", "open", hours=50),
    ]

    listed, everything = synapse("fleet", "outbox"), synapse("fleet", "outbox", "--all")
    told = synapse("fleet", "outbox", "--json").json["messages"]

    title, *rows = listed.out.splitlines()
    at = [title.index(name) for name in ("KIND", "STATE", "SENT", "EXPIRES", "TRIES", "WHY")]
    cells = [[row[:8].strip(), *(row[a:b].strip() for a, b in zip(at, [*at[1:], None], strict=True))] for row in rows]
    assert [(name, kind, state, expires, why) for name, kind, state, _, expires, _, why in cells] == [
        ("back", "cancel", "open", "-", "box2 is away"),
        ("kept", "send", "open", "in 7d", "box2 is away"),
        ("doubt", "send", "uncertain", "-", "lost"),
        ("nobody", "send", "refused", "-", "on box2: no such agent"),
        ("gone", "cancel", "taken back", "-", ""),
        ("late", "cancel", "expired", "-", ""),
    ]
    assert listed.err == "Not listed: 1 accepted, 1 refused, 1 uncertain.  (--all)\n"
    assert [line.split()[0] for line in everything.out.splitlines()[1:]] == [
        *("back", "kept", "doubt", "old", "nobody", "gone", "late", "older", "taken", "done")
    ]
    assert everything.err == ""
    assert [one["state"] for one in told] == [one["state"] for one in link.messages]
    assert told[8]["why"] == "canceled"


def test_a_message_to_a_machine_that_was_removed_says_so(synapse: Cli, link: FakeLink) -> None:
    link.join("box3")
    link.messages = [message("codex", "open")]

    assert "box2 is not in the fleet" in synapse("fleet", "outbox").out


def test_cancels_do_not_count_as_messages_that_wait(synapse: Cli, link: FakeLink) -> None:
    link.join("box2")
    now = SystemClock().now()
    several = {"to": "box2", "open": 5, "cancels": 1, "oldest": (now - timedelta(hours=3, minutes=1)).isoformat()}
    link.status = {"outbox": {**several, "waiting": [several]}}
    status, doctor, found = synapse("fleet", "status"), synapse("doctor"), findings(synapse, "outbox")
    one = {**several, "open": 1}
    link.status = {"outbox": {**one, "waiting": [one]}}
    alone, alone_found = synapse("fleet", "status"), findings(synapse, "outbox")

    assert "4 messages and 1 cancel wait in the outbox, the oldest sent 3h ago.\n" in status.out
    assert "4 messages and 1 cancel wait in the outbox\n" in doctor.out
    assert found[0][1] == "4 messages and 1 cancel wait for box2, though it is present, the oldest for 3h"
    assert "1 cancel waits in the outbox, sent 3h ago.\n" in alone.out
    assert alone_found[0][1] == "1 cancel waits for box2, though it is present, for 3h"


async def put_into_outbox(home: Path, *states: OutboxState) -> None:
    database = LinkDatabase(fleet_folder(home) / "link.db", FakeClock())
    rows = [replace(ROW, message_id=f"m-{state}", state=state) for state in states]
    await database.commit([*rows, replace(ROW, message_id="ended-1", kind="ended")])
    await database.close()


def test_leaving_says_which_messages_are_given_up_and_keeps_the_files_of_both_fleets(synapse: Cli, home: Path) -> None:
    save_fleet(home, LAPTOP)
    asyncio.run(put_into_outbox(home, OutboxState.OPEN, OutboxState.ACCEPTED, OutboxState.SETTLED))
    first = synapse("fleet", "leave")
    save_fleet(home, LAPTOP)
    asyncio.run(put_into_outbox(home))

    second = synapse("fleet", "leave", "--json").json

    assert first.err.splitlines()[:3] == [
        f"This machine has left the fleet 'home'. Its files are kept in {home / 'fleet-left'}.",
        "Messages that no other machine had accepted, and that are not sent any more: 1.",
        "Messages that were accepted, and whose answers do not come any more: 1.",
    ]
    assert (second["kept_in"], second["unsent"], second["unanswered"]) == (str(home / "fleet-left-2"), 0, 0)
    assert (home / "fleet-left" / "link.db").exists()


def test_leaving_works_with_a_damaged_file(synapse: Cli, home: Path) -> None:
    save_fleet(home, LAPTOP)
    (home / "fleet" / "machine.nk").write_text("a key of its own", encoding="utf-8")
    (home / "fleet" / "fleet.json").write_text('{"version": 1, "fle', encoding="utf-8")

    found, listed, link = synapse("doctor"), synapse("list", "--all"), synapse("fleet", "start")
    left = synapse("fleet", "leave")
    again = synapse("fleet", "leave")

    [line] = [one for one in found.out.splitlines() if one.startswith("✗ fleet")]
    assert "fleet.json is not valid" in line
    assert "`synapse fleet start` starts it" in listed.err
    assert (link.code, "fleet.json is not valid" in link.err) == (2, True), link
    assert left.code == 0, left
    assert left.err.splitlines() == [
        f"This machine has left its fleet. Its files are kept in {home / 'fleet-left'}.",
        "On the machine with the server, `synapse fleet remove NAME` takes its key away.",
    ]
    assert (home / "fleet-left" / "fleet.json").exists()
    assert again.code == 7


def test_the_machines_are_listed_while_a_link_runs_with_a_damaged_file(
    synapse: Cli, home: Path, link: FakeLink
) -> None:
    link.join("box2")
    link.start("box2")
    (home / "fleet" / "fleet.json").write_text("", encoding="utf-8")

    title, row = synapse("list", "--all").out.splitlines()

    assert (title.split()[1], row.split()[1:3]) == ("MACHINE", ["box2", "ready"]), row


def test_leaving_with_a_damaged_file_ends_the_fleet_only_on_purpose(synapse: Cli, home: Path) -> None:
    (home / "fleet" / "server").mkdir(parents=True)
    (home / "fleet" / "fleet.json").write_text("", encoding="utf-8")

    refused = synapse("fleet", "leave")
    left = synapse("fleet", "leave", "--end-fleet", "--json")

    assert (refused.code, refused.err.splitlines()[0]) == (7, "Error: this machine runs the fleet's server")
    assert "`synapse fleet leave --end-fleet` ends the fleet" in refused.err
    assert (left.code, left.json["left"], left.json["machine"]) == (0, None, None)


def stop_nothing(_home: Path) -> bool:
    return False


@pytest.mark.parametrize(
    ("ended", "status", "said"),
    [
        ("", None, "On the machine with the server, `synapse fleet remove laptop` takes its key away."),
        (
            "another link runs under the name laptop, so this one has stopped",
            None,
            "Do not remove laptop: another machine runs under that name.",
        ),
        ("", {"connected": False, "problem": f"hub:4222 {KEY_REFUSED}: it was removed from the fleet"}, ""),
    ],
)
def test_who_leaves_is_told_to_have_the_key_removed_only_if_that_is_right(
    synapse: Cli,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    ended: str,
    status: dict[str, Any] | None,
    said: str,
) -> None:
    save_fleet(home, LAPTOP)
    (home / "fleet" / "machine.nk").write_text("a key of its own", encoding="utf-8")
    logs = home / "logs"
    logs.mkdir()
    (logs / "synapse-link.log").write_text("{}\n", encoding="utf-8")
    error = {"error": {"code": "conflict", "message": ended}} if ended else {}
    (logs / "synapse-link.out").write_text(json.dumps(error) + "\n", encoding="utf-8")

    if status is None:
        left = synapse("fleet", "leave")
    else:
        monkeypatch.setattr("synapse.link.background.stop_link", stop_nothing)  # its entry has the pid of this test
        with FakeLink(home).serving() as link:
            link.status = status
            left = synapse("fleet", "leave")

    assert left.code == 0, left
    assert left.err.splitlines()[1:] == ([said] if said else [])


def test_a_host_name_makes_a_name_for_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def name_it(name: str) -> None:
        monkeypatch.setattr("socket.gethostname", lambda: name)

    name_it("Olgas-MacBook.local")
    assert default_machine_name() == "olgas-macbook"
    name_it("box_2")
    assert default_machine_name() == "box-2"
    name_it("日本")
    assert default_machine_name() == ""
