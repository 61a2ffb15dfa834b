"""`synapse doctor`."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from synapse import __version__
from synapse.cli import doctor
from synapse.config.settings import Settings
from synapse.core.agent import AgentEntry
from synapse.registry.files import FileRegistry, gateways
from synapse.server.listener import socket_folders
from synapse.store.file import file_lock
from tests.fakes.link import FakeLink
from tests.unit.cli.conftest import Cli, HostFactory
from tests.unit.cli.fake_host import FakeHost


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder with a short path, because it holds sockets."""
    with tempfile.TemporaryDirectory(prefix="d") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def healthy(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with nothing wrong: `synapse` on the PATH, a private home."""
    programs = home / "bin"
    programs.mkdir()
    (programs / "synapse").write_text("#!/bin/sh\n", encoding="utf-8")
    (programs / "synapse").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("SYNAPSE_UDS_DIR", str(home / "sockets"))
    home.chmod(0o700)


def levels(synapse: Cli) -> dict[str, str]:
    return {finding["subject"]: finding["level"] for finding in synapse("doctor", "--json").json["findings"]}


def test_a_healthy_machine_has_no_problems(synapse: Cli) -> None:
    ran = synapse("doctor")

    assert ran.code == 0
    assert "✗" not in ran.out
    assert "No problems found." in ran.err


def test_a_missing_program_is_a_note_with_how_to_install_it(synapse: Cli) -> None:
    ran = synapse("doctor")

    assert "· claude     'claude' is not installed\n             → npm install" in ran.out
    assert levels(synapse)["dummy"] == "ok"


def test_folders_that_are_open_to_others_are_found(synapse: Cli, home: Path) -> None:
    home.chmod(0o755)
    (home / "sockets").mkdir(mode=0o755)
    (home / "sockets").chmod(0o755)

    ran = synapse("doctor")

    assert ran.code == 1
    assert f"chmod 700 {home}\n" in ran.out
    assert f"chmod 700 {home}/sockets" in ran.out


def test_a_command_that_is_not_on_the_path_is_noted(synapse: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    assert levels(synapse)["command"] == "note"


@pytest.fixture
def codex(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with Codex, and a login profile that resets the PATH."""
    program = home / "bin" / "codex"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    (home / ".profile").write_text("PATH=/usr/bin:/bin\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    log_in_with(monkeypatch, shutil.which("bash", path="/bin:/usr/bin") or "")


def log_in_with(monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    def user(_uid: int) -> SimpleNamespace:
        return SimpleNamespace(pw_shell=shell)

    monkeypatch.setattr(pwd, "getpwuid", user)


@pytest.mark.usefixtures("codex")
def test_doctor_runs_the_shell_of_an_installed_cli_as_the_cli_does(synapse: Cli) -> None:
    ran = synapse("doctor")

    assert ran.code == 0, ran.out
    assert "bash -lc`, which finds `synapse`" in ran.out


@pytest.mark.usefixtures("codex")
def test_a_shell_in_which_an_agent_cannot_call_synapse_is_a_problem(
    synapse: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A shell other than bash reads its login profile, and nothing after it.
    log_in_with(monkeypatch, shutil.which("dash", path="/bin:/usr/bin") or pytest.skip("dash is not installed"))

    ran = synapse("doctor")

    assert ran.code == 1
    assert "dash -lc`, which does not find `synapse`: " in ran.out
    assert "ln -s " in ran.out


@pytest.mark.usefixtures("codex")
def test_a_shell_that_cannot_run_is_a_problem(synapse: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    log_in_with(monkeypatch, "/nowhere/bash")

    assert "/nowhere/bash: No such file or directory" in synapse("doctor").out


def test_a_damaged_store_is_a_problem(synapse: Cli, home: Path) -> None:
    (home / "store.db").write_bytes(b"this is no database, and long enough to be read as one" * 100)

    assert levels(synapse)["store"] == "problem"


def test_invalid_settings_are_a_problem_and_do_not_end_doctor(synapse: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNAPSE_QUEUE_LIMIT", "many")

    found = levels(synapse)

    assert (found["settings"], found["version"]) == ("problem", "ok")


def test_a_host_that_does_not_answer_is_a_problem(synapse: Cli, home: Path) -> None:
    FileRegistry(home / "registry").write(AgentEntry("synapse-codex-8120", "codex", port=1, pid=os.getpid()))

    ran = synapse("doctor")

    assert ran.code == 1
    assert "synapse stop synapse-codex-8120 --force" in ran.out


def test_a_broken_profile_of_the_user_is_a_problem(synapse: Cli, home: Path) -> None:
    (home / "config" / "synapse" / "profiles").mkdir(parents=True)
    (home / "config" / "synapse" / "profiles" / "mine.toml").write_text("command = 3", encoding="utf-8")

    assert levels(synapse)["mine"] == "problem"


def test_a_degraded_agent_is_a_note(synapse: Cli, start: HostFactory) -> None:
    host = start()
    host.state["sightings"] = [
        {"source": "signal", "state": "", "detail": "degraded: its hooks are off"},
        {"source": "screen", "state": "ready", "detail": "the prompt is visible"},
    ]

    ran = synapse("doctor")

    assert "its hooks are off" in ran.out
    assert "synapse status codex-8120 --explain" in ran.out
    assert "the prompt is visible" not in ran.out


@pytest.mark.parametrize(
    ("kind", "tools", "level", "advice"),
    [
        ("codex", {"way": "mcp", "mcp": "listed", "client": "codex 0.166"}, "ok", ""),
        ("codex", {"way": "shell", "mcp": "expected", "why": "not yet"}, "note", ""),
        ("codex", {"way": "shell", "mcp": "missing", "why": "it did not ask"}, "note", "synapse restart codex-8120"),
        ("codex", {"way": "shell", "mcp": "off", "why": "--no-mcp"}, "note", ""),
        (
            "gemini",
            {"way": "shell", "mcp": "off", "why": "no means"},
            "note",
            "synapse mcp install gemini && synapse restart gemini-8120",
        ),
        ("gemini", {"way": "mcp", "mcp": "listed"}, "ok", ""),
    ],
)
def test_doctor_tells_how_each_agent_reaches_others(
    synapse: Cli, start: HostFactory, kind: str, tools: dict[str, str], level: str, advice: str
) -> None:
    start(kind, 8120).state["tools"] = {**tools, "since": "2024-01-15T10:30:00.000Z"}

    (found,) = [one for one in synapse("doctor", "--json").json["findings"] if one["text"].startswith("its tools: ")]

    assert (found["subject"], found["level"]) == (f"{kind}-8120", level)
    assert tools.get("why", tools.get("client", "")) in found["text"]
    assert advice in found["advice"]
    assert bool(advice) is bool(found["advice"])


def test_an_agent_without_a_cli_needs_no_tools(synapse: Cli, start: HostFactory) -> None:
    start().state["tools"] = {"way": "none", "mcp": "off", "why": "a script", "since": None}

    assert "its tools" not in synapse("doctor").out


def test_a_store_whose_lock_another_process_keeps_is_a_problem(
    synapse: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.cli.doctor.LOCK_SECONDS", 0.1)
    synapse("send", "reviewer", "later", "--queue")
    assert levels(synapse)["store"] == "ok"

    with file_lock(home / "store.db", 1):
        assert levels(synapse)["store"] == "problem"


def test_the_folder_of_the_sockets_is_named_and_why_not_an_earlier_one(
    synapse: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = home / "synapse-a2a"
    usual.touch()
    (home / "run").mkdir()
    folders = socket_folders(str(home / "run"), uid=os.getuid(), preferred=usual)

    def usual_folders(_settings: Settings) -> tuple[Path, ...]:
        return folders

    monkeypatch.setattr(doctor, "usual_socket_folders", usual_folders)
    monkeypatch.delenv("SYNAPSE_UDS_DIR")

    told = synapse("doctor").out

    assert f"{home}/run/synapse-a2a will be created at the first start; not {usual}: it is not a folder" in told


def test_a_read_only_folder_in_the_home_is_a_problem(synapse: Cli, home: Path) -> None:
    (home / "registry").mkdir(mode=0o700)
    mount, umount = (shutil.which(name, path=os.defpath) for name in ("mount", "umount"))
    mounted = [mount or "mount", "-t", "tmpfs", "-o", "ro,mode=700", "none", str(home / "registry")]
    if os.getuid() != 0 or umount is None or subprocess.run(mounted, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")
    try:
        ran = synapse("doctor")
    finally:
        subprocess.run([umount, str(home / "registry")], check=True)

    assert ran.code == 1
    assert f"{home}/registry is not writable: Read-only file system" in ran.out


def test_agents_of_another_version_are_named_with_what_to_do(synapse: Cli, start: HostFactory, home: Path) -> None:
    old = start("codex", 8120)
    old.entry.version = "0.0.1"
    FileRegistry(home / "registry").write(old.entry)

    ran = synapse("doctor")

    assert f"codex-8120 runs 0.0.1, this is {__version__}" in " ".join(ran.out.split())
    assert "synapse restart codex-8120" in ran.out


def test_a_gateway_of_another_version_is_named_in_the_list_and_by_doctor(synapse: Cli, home: Path) -> None:
    old = FakeHost(home, "gateway", 8000)
    old.entry.version = ""
    old.registry = gateways(home)
    with old.serving():
        listed, examined = synapse("list"), synapse("doctor")

    renewal = "synapse stop gateway-8000 && synapse start gateway"
    assert f"· gateway-8000 runs an earlier version, this is {__version__}  ({renewal})\n" in listed.err
    assert renewal in examined.out


def test_stale_sockets_are_named(synapse: Cli, home: Path) -> None:
    (home / "sockets").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(home / "sockets" / "synapse-codex-8120.sock"))
    with socket.socket(socket.AF_UNIX) as heard:
        heard.bind(str(home / "sockets" / "synapse-codex-8121.sock"))
        heard.listen()

        ran = synapse("doctor")

    assert "1 left by killed agents" in ran.out
    assert "rm synapse-codex-8120.sock\n" in ran.out
    assert ran.code == 0


def test_the_fleet_is_a_line_of_a_machine_that_is_in_one(synapse: Cli, home: Path) -> None:
    assert "fleet" not in levels(synapse)
    with FakeLink(home).serving() as link:
        link.join("box2")
        link.join("box3")
        link.away["box3"] = ""

        ran = synapse("doctor")
    silent = synapse("doctor")

    assert "✓ fleet      laptop in the fleet 'home', with 2 other machines (away: box3)" in ran.out
    assert "✗ fleet      the link of this machine does not run" in silent.out
    assert silent.code == 1
