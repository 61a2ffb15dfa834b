"""A cloned repository decides nothing: each test plants something in one and shows that it has no effect."""

from __future__ import annotations

import http.client
import json
import os
import pty
import select
import shlex
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from synapse.registry.files import start_time
from tests.integration.cli.session import COMMAND, PATIENCE, ROOT, has_agents
from tests.samples.commands import Ran

pytestmark = pytest.mark.integration
EVIL = """
command = ["sh", "-c", "echo ran >> pwned; cat"]
instructions = false
"""
RUNNER = """
command = ["sh", "-c", 'while printf "> "; read -r line; do eval "$line"; done']
envelope = false
instructions = false
[prompt]
pattern = '^> (?P<text>.*)$'
at_cursor = true
[answer]
echo = '^> '
"""


class Victim:
    """A person who has cloned a repository and types commands in it. Their state folder is the usual one."""

    def __init__(self, folder: Path) -> None:
        self.home, self.clone = folder / "home", folder / "clone"
        for made in (self.home, self.clone):
            made.mkdir(mode=0o700)
        foreign = ("SYNAPSE_", "XDG_", "PYTHON")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self.environ = {**kept, "HOME": str(self.home), "SYNAPSE_UDS_DIR": str(folder / "s"), "PYTHONPATH": str(ROOT)}

    @property
    def state(self) -> Path:
        return self.home / ".a2a"

    @property
    def pwned(self) -> Path:
        return self.clone / "pwned"

    def plant(self, name: str, text: str) -> Path:
        path = self.clone / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def run(self, *arguments: str, **environ: str) -> Ran:
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.clone,
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def run_at_terminal(self, *arguments: str, answer: bytes, **environ: str) -> str:
        """Types a command in a terminal of its own and the answer to its question; returns its output."""
        ours, theirs = pty.openpty()
        command = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.clone,
            env=self.environ | environ,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        shown, deadline = b"", time.monotonic() + PATIENCE
        try:
            while time.monotonic() < deadline:
                if not select.select([ours], [], [], 0.1)[0]:
                    continue
                try:
                    shown += os.read(ours, 4096)
                except OSError:
                    break  # it has ended
                if answer and b"[y/N]" in shown:
                    os.write(ours, answer)
                    answer = b""
            command.wait(PATIENCE)
        finally:
            os.close(ours)
        return shown.decode("utf-8")


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    person = Victim(tmp_path)
    yield person
    if has_agents(person.state):
        person.run("stop", "gateway", "--force")
        person.run("stop", "--all", "--force")


def plant_home(victim: Victim) -> Path:
    """A state folder of the repository's own, which its settings name."""
    victim.plant(".synapse/config.toml", "home = '.synapse/home'\nuds_dir = '.synapse/s'\n")
    planted = victim.clone / ".synapse" / "home"
    planted.mkdir()
    return planted


def test_a_planted_state_folder_opens_no_gateway_and_starts_no_program(victim: Victim) -> None:
    planted = plant_home(victim)
    made = victim.run(
        "keys", "create", "attacker", "--actions", "all", "--json", SYNAPSE_HOME=str(victim.home / "made")
    )
    (victim.home / "made" / "keys.json").rename(planted / "keys.json")
    victim.plant(".synapse/profiles/evil.toml", EVIL)
    agents = f'port = 0\ngrpc_port = 0\n[[agents]]\nid = "evil"\nprofile = "evil"\nworking_dir = "{victim.clone}"\n'
    (planted / "gateway.toml").write_text(agents, encoding="utf-8")

    started = victim.run("start", "gateway", "--port", "0", "--grpc-port", "0", "--json")

    assert started.code == 0, started
    with closing(http.client.HTTPConnection("127.0.0.1", started.json["port"], timeout=PATIENCE)) as connection:
        connection.request("GET", "/agents/list.json", headers={"Authorization": f"Bearer {made.json['key']}"})
        assert connection.getresponse().status == 401
    assert (victim.state / "gateways").is_dir()
    assert not (planted / "gateways").exists()
    assert not victim.pwned.exists()


def test_a_planted_store_is_not_opened(victim: Victim) -> None:
    planted = plant_home(victim)
    made = victim.run("send", "ada", "hello", "--queue", SYNAPSE_HOME=str(victim.home / "made"))
    assert made.code == 0, made
    # With its log: SQLite does not promise that the last one to close it has emptied the log.
    for file in (victim.home / "made").glob("store.db*"):
        file.rename(planted / file.name)
    with closing(sqlite3.connect(planted / "store.db")) as store:
        store.execute("CREATE TABLE seen (id TEXT)")
        store.execute("CREATE TRIGGER evil AFTER INSERT ON tasks BEGIN INSERT INTO seen VALUES (NEW.id); END")
        store.commit()

    sent = victim.run("send", "bob", "hello", "--queue")

    assert sent.code == 0, sent
    with closing(sqlite3.connect(planted / "store.db")) as store:
        assert store.execute("SELECT COUNT(*) FROM seen").fetchone() == (0,)
    assert (victim.state / "store.db").exists()


def test_a_planted_registry_entry_names_no_agent(victim: Victim) -> None:
    planted = plant_home(victim)
    with subprocess.Popen(["sleep", "60"]) as chosen:
        entry = {"agent_id": "synapse-codex-8120", "agent_type": "codex", "port": 8120, "pid": chosen.pid}
        (planted / "registry").mkdir()
        text = json.dumps({**entry, "pid_started": start_time(chosen.pid), "socket": "", "endpoint": ""})
        (planted / "registry" / "synapse-codex-8120.json").write_text(text, encoding="utf-8")
        try:
            stopped = victim.run("stop", "codex", "--force")

            assert stopped.code == 3, stopped
            assert chosen.poll() is None
        finally:
            chosen.kill()


def test_a_planted_package_is_not_imported(victim: Victim) -> None:
    for name in ("synapse/__init__.py", "synapse/tools/__init__.py", "synapse/tools/dummy.py", "select.py"):
        victim.plant(name, f"open({str(victim.pwned)!r}, 'w')\n")

    started = victim.run("start", "dummy", "--no-instructions")

    assert not victim.pwned.exists()
    assert started.code == 0, started
    assert victim.run("send", "dummy", "hello", "--response", "--timeout", "20").out == "echo: hello\n"


def test_a_planted_program_is_not_found_by_a_relative_entry_of_the_path(victim: Victim) -> None:
    victim.plant("claude", "#!/bin/sh\ntouch pwned\n").chmod(0o755)

    refused = victim.run("start", "claude", PATH=f".::{os.environ['PATH']}:/usr/bin:/bin")

    assert not victim.pwned.exists()
    assert refused.code in (0, 3), refused


def test_a_name_of_a_planted_profile_is_no_command_of_a_completion_script(victim: Victim) -> None:
    victim.plant(".synapse/profiles/$(touch pwned).toml", EVIL)
    victim.plant(".synapse/profiles/harmless.toml", EVIL)
    victim.run("trust")
    script = victim.run("completion", "bash").out + "COMP_WORDS=(synapse x) COMP_CWORD=1; _synapse\n"

    subprocess.run(["bash", "-c", script], cwd=victim.clone, timeout=PATIENCE, check=False, capture_output=True)

    assert not victim.pwned.exists()
    assert "harmless" not in script


def test_a_profile_of_a_project_runs_once_the_folder_is_trusted_and_until_it_changes(victim: Victim) -> None:
    profile = victim.plant(".synapse/profiles/evil.toml", EVIL)

    refused = victim.run("start", "evil")
    assert refused.code == 3
    assert refused.err.count("synapse trust") == 1
    assert not victim.pwned.exists()

    trusted = victim.run("trust", "--json")
    assert (trusted.code, trusted.json["state"]) == (0, "trusted")
    assert victim.run("start", "evil").code == 0
    assert victim.pwned.exists()
    assert victim.run("stop", "evil").code == 0

    profile.write_text(EVIL + "# pulled\n", encoding="utf-8")
    again = victim.run("start", "evil")
    assert again.code == 3
    assert "it has changed since you trusted it" in again.err


def test_an_agent_whose_project_has_changed_is_not_stopped_for_a_restart(victim: Victim) -> None:
    profile = victim.plant(".synapse/profiles/evil.toml", EVIL)
    victim.run("trust")
    assert victim.run("start", "evil").code == 0
    profile.write_text(EVIL + "# pulled\n", encoding="utf-8")

    assert victim.run("restart", "evil").code == 3

    assert [agent["agent_type"] for agent in victim.run("list", "--json").json] == ["evil"]


def test_settings_of_an_untrusted_project_are_ignored_with_one_line(victim: Victim) -> None:
    victim.plant(".synapse/config.toml", "instructions = false\nqueue_limit = 'broken'\n")

    started = victim.run("start", "dummy")

    assert started.code == 0, started
    line, told = started.err.splitlines()
    assert line.startswith(f"Warning: {victim.clone}/.synapse is ignored, because you have not trusted it")
    assert line.endswith(f"synapse trust {victim.clone}")
    assert told.startswith("dummy")


def test_a_person_at_a_terminal_is_asked_once_and_sees_what_would_be_run(victim: Victim) -> None:
    victim.plant(".synapse/profiles/evil.toml", EVIL)
    victim.plant(".synapse/\x1b[31mred", "")

    asked = victim.run_at_terminal("start", "evil", answer=b"n\n")
    assert "runs: sh -c 'echo ran >> pwned; cat'" in asked
    assert "\x1b[31mred" not in asked
    assert not victim.pwned.exists()
    silent = victim.run_at_terminal("start", "evil", answer=b"y\n")
    assert "[y/N]" not in silent
    assert not victim.pwned.exists()

    victim.plant(".synapse/profiles/evil.toml", EVIL + "# pulled\n")
    assert "[y/N]" in victim.run_at_terminal("start", "evil", answer=b"y\n")

    assert victim.pwned.exists()
    assert [one["state"] for one in victim.run("trust", "--list", "--json").json] == ["trusted"]


def test_an_agent_can_neither_trust_a_folder_nor_be_asked(victim: Victim) -> None:
    victim.plant(".synapse/profiles/evil.toml", EVIL)
    agent = {"SYNAPSE_AGENT_ID": "synapse-codex-8120"}

    for words in (["trust"], ["trust", "--revoke"]):
        refused = victim.run(*words, **agent)
        assert (refused.code, "only a person may decide" in refused.err) == (7, True)
    shown = victim.run_at_terminal("start", "evil", answer=b"y\n", **agent)

    assert "[y/N]" not in shown
    assert not victim.pwned.exists()


@pytest.mark.parametrize("hidden", ["", "env -u SYNAPSE_AGENT_ID -u SYNAPSE_SOCKET ", "setsid --wait "])
def test_a_real_agent_is_known_by_its_ancestors_or_its_environment(victim: Victim, hidden: str) -> None:
    own = victim.home / ".config" / "synapse" / "profiles"
    own.mkdir(parents=True)
    (own / "runner.toml").write_text(RUNNER, encoding="utf-8")
    victim.plant(".synapse/profiles/evil.toml", EVIL)
    assert victim.run("start", "runner").code == 0
    command = f"{hidden}{shlex.join(COMMAND)} trust 2>&1; echo code=$?"

    tried = victim.run("send", "runner", command, "--response", "--timeout", "20")

    assert "only a person may decide" in tried.out
    assert "code=7" in tried.out
    assert victim.run("trust", "--list", "--json").json == []


@pytest.mark.parametrize("verb", [["list"], ["send", "codex", "hello"], ["start", "dummy"], ["keys", "list"]])
def test_a_state_folder_in_the_project_is_refused(victim: Victim, verb: list[str]) -> None:
    victim.plant(".synapse/config.toml", "")

    refused = victim.run(*verb, SYNAPSE_HOME=str(victim.clone / "state"))

    assert refused.code == 2, refused
    assert "is inside the project" in refused.err
    assert not (victim.clone / "state").exists()


@pytest.mark.parametrize("verb", [["list"], ["send", "codex", "hello"], ["start", "dummy"], ["keys", "list"]])
def test_a_state_folder_that_others_can_write_is_refused(verb: list[str]) -> None:
    # Not in the folder of the tests, which other users cannot enter.
    with tempfile.TemporaryDirectory() as folder:
        victim = Victim(Path(folder))
        victim.state.mkdir()
        for path, mode in ((Path(folder), 0o755), (victim.home, 0o755), (victim.state, 0o777)):
            path.chmod(mode)

        refused = victim.run(*verb)

    assert refused.code == 2, refused
    assert f"{victim.state} can be written by other users (mode 0777)\nchmod go-w {victim.state}\n" in refused.err
