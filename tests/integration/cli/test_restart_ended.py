"""`synapse restart` of an agent whose host is gone: it is started as its last run was."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from synapse.cli.exit_codes import REFUSED
from synapse.cli.main import main
from synapse.cli.start import command_line
from synapse.core.agent import AgentEntry
from synapse.host.background import restart_host, stop_host
from synapse.registry.files import FileRegistry
from tests.integration.cli.session import ROOT
from tests.integration.cli.test_background import wait_until_gone
from tests.samples.ports import own_port

pytestmark = pytest.mark.integration


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[FileRegistry]:
    monkeypatch.setenv("SYNAPSE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SYNAPSE_UDS_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    found = FileRegistry(tmp_path / "registry")
    yield found
    for entry in found.entries():
        stop_host(entry, found, force=True)


def killed(registry: FileRegistry) -> AgentEntry:
    """Kill the only agent, as a crash of the machine would."""
    (entry,) = registry.entries()
    os.kill(entry.pid, signal.SIGKILL)
    wait_until_gone(entry.pid)
    return entry


def test_an_agent_whose_host_was_killed_is_started_as_it_was(
    registry: FileRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start = ["start", "dummy", "--name", "ada", "--role", "a tester", "--no-instructions"]
    assert main(["synapse", *start, "--port", str(own_port()), "--", "--some", "word"]) == 0
    before = killed(registry)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert main(["synapse", "restart", "ada"]) == 0

    (again,) = registry.entries()
    words = command_line(again.pid)
    assert again.pid != before.pid
    assert (again.agent_id, again.name, again.role) == (before.agent_id, "ada", "a tester")
    assert (again.working_dir, again.inbox) == (before.working_dir, before.inbox)
    assert "--no-instructions" in words
    assert "--resume" in words[: words.index("--")]
    assert words[words.index("--") + 1 :] == ["--some", "word"]


def test_a_script_that_was_stopped_is_started_again(registry: FileRegistry) -> None:
    script = str(ROOT / "docs" / "examples" / "hello.toml")
    assert main(["synapse", "start", "scripted", script, "--name", "echo", "--port", str(own_port())]) == 0
    assert main(["synapse", "stop", "echo"]) == 0

    assert main(["synapse", "restart", "echo", "--fresh"]) == 0

    (again,) = registry.entries()
    assert (again.agent_type, again.name) == ("scripted", "echo")
    assert "--resume" not in command_line(again.pid)


def test_the_name_of_a_profile_means_its_agent_in_this_folder(
    registry: FileRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        monkeypatch.chdir(folder)
        assert main(["synapse", "start", "dummy", "--no-instructions", "--port", str(own_port())]) == 0
        assert main(["synapse", "stop", "dummy"]) == 0
    monkeypatch.chdir(tmp_path)

    assert main(["synapse", "restart", "dummy"]) != 0
    assert "dummy-" in capsys.readouterr().err
    monkeypatch.chdir(folders[0])
    assert main(["synapse", "restart", "dummy"]) == 0

    assert [entry.working_dir for entry in registry.entries()] == [str(folders[0])]


def test_an_agent_that_nobody_gave_a_port_gets_a_free_one_if_its_own_is_taken(
    registry: FileRegistry, tmp_path: Path
) -> None:
    ports = own_port()
    profile = tmp_path / "config" / "synapse" / "profiles" / "line.toml"
    profile.parent.mkdir(parents=True)
    profile.write_text(f'command = ["cat"]\nports = [{ports}, {ports + 1}]\n', encoding="utf-8")
    assert main(["synapse", "start", "line", "--name", "ada", "--no-instructions"]) == 0
    before = killed(registry)

    with socket.create_server(("127.0.0.1", before.port)):
        assert main(["synapse", "restart", "ada"]) == 0

    (again,) = registry.entries()
    assert (again.name, again.inbox) == ("ada", before.inbox)
    assert again.port != before.port


def test_a_port_that_was_asked_for_is_kept_or_the_start_is_refused(
    registry: FileRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["synapse", "start", "dummy", "--name", "ada", "--no-instructions", "--port", str(own_port())]) == 0
    before = killed(registry)
    capsys.readouterr()

    with socket.create_server(("127.0.0.1", before.port)):
        code = main(["synapse", "restart", "ada"])

    assert code == REFUSED
    assert "to start it on another port: synapse start dummy --name ada" in " ".join(capsys.readouterr().err.split())


def test_an_agent_may_not_start_one_that_has_ended(
    registry: FileRegistry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["synapse", "start", "dummy", "--name", "ada", "--no-instructions", "--port", str(own_port())]) == 0
    killed(registry)
    capsys.readouterr()
    monkeypatch.setattr("synapse.cli.start.objection", lambda: "this is an agent")

    code = main(["synapse", "restart", "ada"])

    assert code != 0
    assert "ada has ended, and an agent may not start it with other rights" in capsys.readouterr().err
    assert registry.entries() == []


def test_a_host_that_restarts_itself_goes_on_or_begins_anew(registry: FileRegistry, tmp_path: Path) -> None:
    start = ["start", "dummy", "--name", "ada", "--no-instructions", "--port", str(own_port())]
    assert main(["synapse", *start, "--", "--resume"]) == 0
    (entry,) = registry.entries()

    for resume in (True, True, False):
        entry = restart_host(entry, registry, tmp_path / "logs", resume=resume)
        words = command_line(entry.pid)
        ours, theirs = words[: words.index("--")], words[words.index("--") + 1 :]
        assert ours.count("--resume") == int(resume)
        assert theirs == ["--resume"]


def test_a_name_that_no_agent_ever_had_is_not_found(registry: FileRegistry, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synapse", "restart", "nobody"]) != 0
    assert "nobody" in capsys.readouterr().err
    assert registry.written() == []
