"""Teams of real agents: brought up, changed, kept running and taken down by real commands."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from synapse.cli.exit_codes import DONE, FAILED, NOT_FOUND, REFUSED
from synapse.cli.start import command_line
from synapse.config.process import SystemClock
from synapse.core.agent import AgentEntry
from synapse.host.ends import EndReason, HostEnd, read_end
from synapse.registry.files import FileRegistry, start_time
from synapse.teams.state import TeamStore
from tests.integration.cli.session import COMMAND, ROOT, Session, session
from tests.integration.waiting import until
from tests.samples.commands import Ran
from tests.samples.ports import own_port

pytestmark = pytest.mark.integration
SCRIPT = ROOT / "docs" / "examples" / "hello.toml"


class TeamSession(Session):
    """A session with the team file `work/team.toml`."""

    @property
    def file(self) -> Path:
        return self.folder / "team.toml"

    def write(self, **agents: str) -> None:
        """Writes and trusts a team file with these tables; `dummy` and `script` are agents that are ready at once."""
        short = {"dummy": 'profile = "dummy"\ninstructions = false', "script": f'script = "{SCRIPT}"'}
        lines = {name: [short.get(line, line) for line in table.splitlines()] for name, table in agents.items()}
        tables = ("\n".join((f"[agents.{name}]", f"port = {own_port()}", *table)) for name, table in lines.items())
        self.replace_text("\n".join(('[team]\nname = "shop"', *tables)))

    def replace_text(self, text: str) -> None:
        self.file.write_text(text, encoding="utf-8")
        assert self.run("trust", str(self.file)).code == DONE

    def up(self, *arguments: str) -> Ran:
        return self.run("up", str(self.file), *arguments)

    def results(self, *arguments: str) -> dict[str, tuple[str, str]]:
        """What `up` did with each agent, and why."""
        return {one["agent"]: (one["result"], one["why"]) for one in self.up("--json", *arguments).json["agents"]}

    def shown(self) -> dict[str, dict[str, Any]]:
        """What `ps` shows of each agent."""
        return {one["agent"]: one for one in self.run("ps", "--json").json}

    def states(self) -> dict[str, str]:
        return {name: one["state"] for name, one in self.shown().items()}

    def entries(self) -> dict[str, AgentEntry]:
        """The running agents."""
        return {one.name: one for one in FileRegistry(self.home / "registry").entries()}

    def pids(self) -> dict[str, int]:
        return {name: one.pid for name, one in self.entries().items()}

    def restarts(self, name: str) -> int:
        """How often the keeper has started an agent again."""
        record = TeamStore(self.home).read("shop")
        member = record.member(name) if record else None
        return member.restarts if member else 0

    def logged(self, event: str, agent: str) -> dict[str, Any] | None:
        """The last event of the keeper about an agent."""
        file = self.home / "logs" / "synapse-team-shop.log"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        events = [json.loads(line) for line in lines]
        return next((one for one in reversed(events) if (one["event"], one.get("agent")) == (event, agent)), None)

    def keeper(self) -> int:
        record = json.loads((self.home / "teams" / "keepers" / "shop.json").read_text(encoding="utf-8"))
        return int(record["pid"])


@pytest.fixture
def team(tmp_path: Path) -> Generator[TeamSession]:
    with session(tmp_path / "h", TeamSession) as opened:
        assert isinstance(opened, TeamSession)
        yield opened
        if (opened.home / "teams" / "shop.json").exists():
            opened.run("down", "shop")


def test_a_team_is_brought_up_in_order_and_only_once(team: TeamSession) -> None:
    team.write(web='dummy\nafter = ["db"]\nrole = "You serve."', db="script")

    first = team.up("--json").json
    assert [(one["agent"], one["result"]) for one in first["agents"]] == [("db", "started"), ("web", "started")]
    assert (first["team"], first["file"]) == ("shop", str(team.file))
    entries = team.entries()
    assert {name: (one.team, one.role) for name, one in entries.items()} == {
        "db": ("shop", ""),
        "web": ("shop", "You serve."),
    }
    assert entries["db"].started_at < entries["web"].started_at

    assert team.results() == {"db": ("unchanged", ""), "web": ("unchanged", "")}
    assert team.pids() == {name: one.pid for name, one in entries.items()}

    ran = team.run("down", "shop")
    assert [line for line in ran.err.splitlines() if line.endswith("stopped")] == ["web stopped", "db stopped"]
    assert team.entries() == {}
    assert "No team is up" in team.run("ps").err


def test_a_changed_file_changes_only_what_differs(team: TeamSession) -> None:
    team.write(db="script", web="script", old='script\nrestart = "never"')
    assert team.up().code == DONE
    before = team.entries()
    text = team.file.read_text(encoding="utf-8").partition("[agents.old]")[0]

    team.file.write_text(text.replace("script", 'role = "New."\nscript', 1), encoding="utf-8")
    refused = team.up()
    assert refused.code == REFUSED
    assert f"{team.file} has changed since you trusted it" in refused.err
    assert f"synapse trust {team.file}" in refused.err
    assert team.pids() == {name: one.pid for name, one in before.items()}
    team.replace_text(team.file.read_text(encoding="utf-8"))

    planned = team.up("--dry-run").err.splitlines()
    assert planned == [
        "old: would stop, because it is no longer in the file",
        "db: would restart, because role changed",
        "web: is unchanged",
    ]
    assert team.results() == {
        "old": ("stopped", "it is no longer in the file"),
        "db": ("restarted", "role changed"),
        "web": ("unchanged", ""),
    }
    after = team.entries()
    assert after.keys() == {"db", "web"}
    assert after["web"].pid == before["web"].pid
    assert (after["db"].role, after["db"].port) == ("New.", before["db"].port)


def test_an_agent_that_cannot_start_does_not_stop_the_others(team: TeamSession) -> None:
    team.write(bad='profile = "no-such"', needs='script\nafter = ["bad"]', good="script")

    ran = team.up("--json")

    assert ran.code == FAILED
    said = {one["agent"]: one for one in ran.json["agents"]}
    assert {name: one["result"] for name, one in said.items()} == {
        "bad": "failed",
        "needs": "failed",
        "good": "started",
    }
    assert said["needs"]["error"]["message"] == "it starts after bad, which is not running"
    assert "no-such" in said["bad"]["error"]["message"]
    assert team.states() == {"bad": "not started", "needs": "not started", "good": "ready"}


def test_an_agent_that_does_not_start_by_itself_is_started_by_its_name(team: TeamSession) -> None:
    team.write(db="dummy", spare="dummy\nstart = false")

    assert team.results() == {"db": ("started", "")}
    assert team.results("spare", "--fresh") == {"spare": ("started", "")}
    entries = team.entries()
    assert "--resume" in command_line(entries["db"].pid)
    assert "--resume" not in command_line(entries["spare"].pid)
    assert team.results() == {"db": ("unchanged", ""), "spare": ("unchanged", "")}


def test_an_agent_of_a_person_is_never_taken_into_a_team(team: TeamSession) -> None:
    mine = team.start("db")
    team.write(db="script")

    ran = team.up()

    assert ran.code == FAILED
    assert f"{mine['agent_id']} goes by that name already, and belongs to no team" in ran.err
    assert team.entries()["db"].pid == mine["pid"]


def test_a_killed_agent_comes_back_and_a_stopped_one_does_not(team: TeamSession) -> None:
    team.write(db="dummy", web="script")
    team.up()
    before = team.entries()

    os.kill(before["db"].pid, signal.SIGKILL)
    until(lambda: team.restarts("db") == 1, "the agent to be started again", team.states)
    again = team.entries()["db"]
    assert again.pid != before["db"].pid
    assert again.agent_id == before["db"].agent_id
    assert "--resume" in command_line(again.pid)

    assert team.run("stop", "web").code == DONE
    ended = until(lambda: team.logged("agent_ended", "web"), "the keeper to see the end of web")
    assert (ended["reason"], ended["starts_again"]) == ("stopped", False)
    assert team.states() == {"db": "ready", "web": "stopped"}

    assert team.results() == {"db": ("unchanged", ""), "web": ("started", "")}


def test_an_agent_that_has_crashed_can_be_stopped_before_it_comes_back(team: TeamSession) -> None:
    team.write(db="dummy")
    team.up()
    keeper, host = team.keeper(), team.entries()["db"].pid

    def suspended() -> bool:
        os.kill(keeper, signal.SIGSTOP)
        with TeamStore(team.home).try_lock("shop") as is_free:
            if not is_free:
                os.kill(keeper, signal.SIGCONT)
            return is_free

    until(suspended, "the keeper to be suspended between two looks")
    try:
        os.kill(host, signal.SIGKILL)
        until(lambda: "db" not in team.entries(), "the host to be gone")
        stopped = team.run("stop", "db")
    finally:
        os.kill(keeper, signal.SIGCONT)

    assert (stopped.code, stopped.err) == (DONE, "db stopped\n")
    ended = until(lambda: team.logged("agent_ended", "db"), "the keeper to see the end of db")
    assert (ended["reason"], ended["starts_again"]) == ("stopped", False)
    assert team.run("stop", "db").code == NOT_FOUND


def test_the_end_of_a_program_counts_by_its_status(team: TeamSession) -> None:
    team.write(db="dummy", web='dummy\nrestart = "never"')
    team.up()
    before = team.entries()

    team.run("send", "web", "exit 3")
    team.run("send", "db", "exit 0")

    ended = until(lambda: team.logged("agent_ended", "db"), "the keeper to see the end of db")
    assert (ended["reason"], ended["status"], ended["starts_again"]) == ("ended", 0, False)
    until(lambda: team.states() == {"db": "exited", "web": "exited 3"}, "both to be shown as ended", team.states)
    end = read_end(team.home, before["web"].agent_id, before["web"].pid, before["web"].pid_started)
    assert isinstance(end, HostEnd)
    assert (end.reason, end.status) == (EndReason.ENDED, 3)


def test_a_keeper_that_was_killed_is_missed_and_replaced(team: TeamSession) -> None:
    team.write(db="script")
    team.up()
    first = team.keeper()
    assert team.up().code == DONE
    assert team.keeper() == first

    os.kill(first, signal.SIGKILL)
    until(lambda: "shop has no keeper" in team.run("ps").err, "the keeper to be missed")
    assert team.results() == {"db": ("unchanged", "")}

    assert team.keeper() != first
    assert "keeper" not in team.run("ps").err
    assert team.shown()["db"]["kept"] is True


def test_a_team_without_its_file_is_taken_down_by_its_name(team: TeamSession) -> None:
    team.write(db="script")
    team.up()
    keeper = team.keeper()
    team.file.unlink()

    ran = team.run("down", "shop", "--json")

    assert (ran.code, ran.json["stopped"], ran.json["errors"]) == (DONE, ["db"], [])
    assert team.entries() == {}
    assert start_time(keeper) is None
    assert team.run("down", "shop").code == NOT_FOUND


def test_two_commands_at_once_start_each_agent_once(team: TeamSession) -> None:
    team.write(db="script", web="script")

    both = [team.begin("up", str(team.file), "--json") for _ in range(2)]
    said = [json.loads(one.communicate(timeout=60)[0]) for one in both]

    results = sorted(tuple(agent["result"] for agent in one["agents"]) for one in said)
    assert results == [("started", "started"), ("unchanged", "unchanged")]
    assert len(team.pids()) == 2


def test_a_person_takes_over_a_team_that_an_agent_brought_up(team: TeamSession) -> None:
    team.write(db="script")
    assert team.run("up", str(team.file), SYNAPSE_AGENT_ID="synapse-claude-8100").code == DONE
    assert team.entries()["db"].launched_by
    theirs = team.keeper()

    assert team.results() == {"db": ("restarted", "an agent had started it")}
    assert team.keeper() != theirs
    assert not team.entries()["db"].launched_by


def test_two_files_cannot_be_up_as_one_team(team: TeamSession) -> None:
    team.write(db="script")
    team.up()
    other = team.folder / "other.toml"
    other.write_text(f'[team]\nname = "shop"\n[agents.x]\nscript = "{SCRIPT}"', encoding="utf-8")
    team.run("trust", str(other))

    ran = team.run("up", str(other))

    assert ran.code == REFUSED
    assert f"a team 'shop' is up already, from {team.file}" in ran.err
    assert team.states() == {"db": "ready"}


def test_a_service_is_the_keeper_before_it_starts_an_agent(team: TeamSession) -> None:
    team.write(db="dummy")
    store = TeamStore(team.home)
    with store.lock("shop", SystemClock()):
        service = subprocess.Popen([*COMMAND, "up", "--foreground", str(team.file)], cwd=team.folder, env=team.environ)
        # Otherwise a command that comes next would start another one.
        keeper = until(lambda: store.keeper("shop"), "the service to keep the team")
    assert (keeper.pid, keeper.foreground) == (service.pid, True)
    until(lambda: team.states() == {"db": "ready"}, "the agent to be ready")

    service.terminate()
    assert service.wait(30) == 0
    assert team.entries() == {}


def test_a_service_keeps_its_team_and_stops_what_it_started(team: TeamSession) -> None:
    team.write(db="script", web='dummy\nafter = ["db"]')
    assert team.up("db").err.endswith("\nOf the team shop, db is up  (synapse ps)\n")
    background = team.keeper()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.settimeout(30)
        notices.bind(str(team.home / "n"))
        service = subprocess.Popen(
            [*COMMAND, "up", "--foreground", str(team.file)],
            cwd=team.folder,
            env=team.environ | {"NOTIFY_SOCKET": str(team.home / "n")},
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        assert notices.recv(1000) == b"READY=1\nSTATUS=Team shop is up"
    assert team.keeper() == service.pid != background
    assert team.states() == {"db": "ready", "web": "ready"}
    web = team.entries()["web"].pid
    assert b"NOTIFY_SOCKET" not in Path(f"/proc/{web}/environ").read_bytes()
    assert team.up("--foreground").code == REFUSED

    os.kill(web, signal.SIGKILL)
    until(lambda: team.restarts("web") == 1, "web to be started again")
    service.terminate()

    _, said = service.communicate(timeout=30)
    assert service.returncode == 0
    assert said.splitlines()[-1] == "web stopped"
    # It was up before the service.
    assert team.states() == {"db": "ready", "web": "stopped"}


def test_a_member_with_a_worktree_works_there(team: TeamSession) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "--allow-empty", "-m", "begin"]):
        author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *author, *words], cwd=team.folder, check=True)
    team.write(coder="dummy\nworktree = true")

    said = team.up()
    assert "coder started" in said.err
    assert "  new worktree " in said.err
    assert "/work.worktrees/coder on the branch synapse/coder\n" in said.err
    assert team.entries()["coder"].working_dir == str(team.home / "work.worktrees" / "coder")
    assert team.results() == {"coder": ("unchanged", "")}
    os.kill(team.entries()["coder"].pid, signal.SIGKILL)
    until(lambda: team.restarts("coder") == 1, "it to be started again")

    assert team.shown()["coder"]["folder"] == str(team.home / "work.worktrees" / "coder")
