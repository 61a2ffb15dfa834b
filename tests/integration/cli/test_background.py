"""Starting and ending real hosts, with the command line in this process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from synapse.cli.exit_codes import REFUSED
from synapse.cli.main import main
from synapse.config.settings import BUNDLED_PROFILES
from synapse.core.agent import AgentEntry
from synapse.core.errors import AgentExited, AgentUnresponsive, SynapseError
from synapse.host.background import HostLaunch, start_host, stop_host
from synapse.host.ends import EndReason, read_end
from synapse.registry.files import FileRegistry, start_time
from tests.integration.cli.session import ROOT
from tests.samples.ports import own_port

pytestmark = pytest.mark.integration


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[FileRegistry]:
    monkeypatch.setenv("SYNAPSE_HOME", str(tmp_path))
    monkeypatch.setenv("SYNAPSE_UDS_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    found = FileRegistry(tmp_path / "registry")
    yield found
    for entry in found.entries():
        stop_host(entry, found, force=True)


def stubborn(registry: FileRegistry) -> tuple[subprocess.Popen[bytes], AgentEntry]:
    """A process that is told to end, and does not."""
    return registered(registry, "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()")


def registered(registry: FileRegistry, code: str) -> tuple[subprocess.Popen[bytes], AgentEntry]:
    """A process in the place of a host; it prints a line when it is ready."""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    started = start_time(process.pid) or 0
    entry = AgentEntry("synapse-stubborn-8200", "stubborn", pid=process.pid, pid_started=started)
    registry.write(entry)
    return process, entry


def wait_until_gone(pid: int) -> None:
    """Wait, with a bound, for the end of a process that is our child's child or ours."""
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            assert select.select([process], [], [], 5)[0]
        finally:
            os.close(process)


def launched_as(code: str, monkeypatch: pytest.MonkeyPatch) -> HostLaunch:
    """A launch whose host is another program."""

    def command(_: HostLaunch) -> list[str]:
        return [sys.executable, "-c", code]

    monkeypatch.setattr(HostLaunch, "command", command)
    return HostLaunch(verb=["dummy"])


def test_a_host_is_started_restarted_and_stopped(
    registry: FileRegistry, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["synapse", "start", "dummy", "--name", "ada", "--port", str(own_port()), "--no-instructions"]) == 0
    (first,) = registry.entries()
    assert capsys.readouterr().err.startswith("ada runs in the background")
    assert not list((tmp_path / "logs").glob("start-*"))

    assert main(["synapse", "restart", "ada"]) == 0
    (second,) = registry.entries()
    assert (second.agent_id, second.name) == (first.agent_id, "ada")
    assert second.pid != first.pid

    assert main(["synapse", "stop", "ada"]) == 0
    assert registry.written() == []
    assert start_time(second.pid) is None


def test_a_scripted_agent_runs_in_the_background_too(
    registry: FileRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(ROOT / "docs" / "examples" / "hello.toml")

    assert main(["synapse", "start", "scripted", script, "--name", "echo", "--port", str(own_port())]) == 0
    assert main(["synapse", "restart", "echo"]) == 0
    assert [entry.agent_type for entry in registry.entries()] == ["scripted"]
    assert main(["synapse", "start", "scripted"]) == 2
    assert main(["synapse", "stop", "--all"]) == 0
    assert registry.written() == []


@pytest.fixture
def stranger_at_the_port(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Somebody who takes the port of an agent as soon as it is stopped."""
    with contextlib.ExitStack() as taken:

        def stop_and_take(entry: AgentEntry, registry: FileRegistry, *, force: bool = False) -> None:
            stop_host(entry, registry, force=force)
            taken.enter_context(socket.create_server(("127.0.0.1", entry.port)))

        monkeypatch.setattr("synapse.cli.start.stop_host", stop_and_take)
        yield


@pytest.mark.usefixtures("stranger_at_the_port")
@pytest.mark.parametrize("scripted", [False, True])
def test_an_agent_whose_port_is_taken_while_it_restarts_is_said_to_be_stopped_and_how_to_start_it(
    registry: FileRegistry, capsys: pytest.CaptureFixture[str], *, scripted: bool
) -> None:
    script = str(ROOT / "docs" / "examples" / "hello.toml")
    verb = ["scripted", script] if scripted else ["dummy"]
    begun = [*verb, "--name", "ada", "--no-instructions"]
    port = str(own_port())
    assert main(["synapse", "start", *begun, "--port", port]) == 0
    capsys.readouterr()

    code = main(["synapse", "restart", "ada"])

    assert code == REFUSED
    said = " ".join(capsys.readouterr().err.split())
    assert f"ada is stopped, and cannot start again: port {port} is taken by another program" in said
    assert f"synapse start {' '.join(begun)}" in said
    assert "omit" not in said
    assert registry.written() == []


@pytest.mark.usefixtures("stranger_at_the_port")
def test_an_agent_that_nobody_gave_a_port_restarts_on_another_if_its_own_is_taken_meanwhile(
    registry: FileRegistry,
) -> None:
    assert main(["synapse", "start", "dummy", "--name", "ada", "--no-instructions"]) == 0
    (before,) = registry.entries()

    assert main(["synapse", "restart", "ada"]) == 0

    (again,) = registry.entries()
    assert (again.name, again.inbox) == ("ada", before.inbox)
    assert again.port != before.port


def test_a_host_that_fails_tells_its_own_error(registry: FileRegistry, tmp_path: Path) -> None:
    with pytest.raises(SynapseError) as caught:
        start_host(HostLaunch(verb=["dummy"], port=99999), registry, tmp_path / "logs")

    assert "99999 is not a port" in str(caught.value)
    assert not list((tmp_path / "logs").iterdir())


def test_a_host_that_crashes_shows_its_last_lines(
    registry: FileRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = launched_as("raise SystemExit('no such luck')", monkeypatch)

    with pytest.raises(AgentExited) as caught:
        start_host(launch, registry, tmp_path / "logs")

    assert caught.value.hint == "no such luck"


def test_a_host_that_never_comes_up_is_ended(
    registry: FileRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synapse.host.background.START_SECONDS", 1.0)
    code = f"import os,signal; open({str(tmp_path / 'pid')!r},'w').write(str(os.getpid())); signal.pause()"
    launch = launched_as(code, monkeypatch)

    with pytest.raises(AgentUnresponsive, match="did not start"):
        start_host(launch, registry, tmp_path / "logs")

    pid = int((tmp_path / "pid").read_text(encoding="utf-8"))
    wait_until_gone(pid)


def test_a_host_that_does_not_end_is_killed_only_by_force(
    registry: FileRegistry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("synapse.host.background.STOP_SECONDS", 0.2)
    process, entry = stubborn(registry)
    with process:
        assert main(["synapse", "stop", "stubborn"]) == 1
        assert "--force" in capsys.readouterr().err
        assert process.poll() is None

        stop_host(entry, registry, force=True)

        assert process.wait(5) == -signal.SIGKILL
    assert registry.written() == []
    assert_stopped(registry, entry)


def test_a_host_that_has_no_time_to_record_its_stop_counts_as_stopped(registry: FileRegistry) -> None:
    # As while it executes itself anew: the signal has no handler yet.
    process, entry = registered(registry, "import signal; print(flush=True); signal.pause()")
    with process:
        stop_host(entry, registry)

    assert process.wait(5) == -signal.SIGTERM
    assert_stopped(registry, entry)


def assert_stopped(registry: FileRegistry, entry: AgentEntry) -> None:
    end = read_end(Path(registry.folder).parent, entry.agent_id, entry.pid, entry.pid_started)
    assert end is not None, "the keeper of its team would start it again"
    assert end.reason is EndReason.STOPPED


def test_what_a_background_program_showed_before_it_left_is_told(
    registry: FileRegistry, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    profiles = tmp_path / "config" / "synapse" / "profiles"
    profiles.mkdir(parents=True)
    leaving = """command = ["sh", "-c", "echo there is no licence for this machine; exit 3"]"""
    (profiles / "leaving.toml").write_text(leaving, encoding="utf-8")

    if main(["synapse", "start", "leaving"]) == 0:
        # It was so slow to leave that its host was up before.
        for entry in registry.written():
            wait_until_gone(entry.pid)
        assert main(["synapse", "logs", "leaving"]) == 0

    told = "".join(capsys.readouterr())
    assert "the program ended with status 3; its terminal showed:\n  there is no licence for this machine\n" in told


PANE = {
    "TERM": "tmux-256color",
    "TMUX": "/tmp/tmux-0/default,1,0",
    "TMUX_PANE": "%3",
    "COLUMNS": "40",
    "LINES": "10",
    "COLORTERM": "truecolor",
    "TERM_PROGRAM": "tmux",
    "TERM_PROGRAM_VERSION": "3.3a",
    "KITTY_WINDOW_ID": "1",
    "WEZTERM_PANE": "2",
    "VTE_VERSION": "7000",
}
KEPT = {"NO_COLOR": "1", "SSH_CONNECTION": "192.0.2.1 1 192.0.2.2 22", "TERMINFO": "/usr/share/terminfo"}


def variables_of(pid: int) -> dict[str, str]:
    """Returns the environment that a process was started with."""
    words = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


def test_a_background_agent_does_not_see_the_pane_that_started_it(
    registry: FileRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (PANE | KEPT).items():
        monkeypatch.setenv(name, value)

    entry = start_host(HostLaunch(verb=("dummy",), port=own_port(), instructions=False), registry, tmp_path / "logs")

    for pid in (entry.pid, entry.cli_pid):
        seen = variables_of(pid)
        assert {name: seen[name] for name in PANE.keys() & seen.keys()} == {"TERM": "xterm-256color"}
        assert KEPT.items() <= seen.items()


def test_a_profile_with_the_name_of_a_verb_is_started_and_restarted(
    registry: FileRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    profiles = tmp_path / "config" / "synapse" / "profiles"
    profiles.mkdir(parents=True)
    for name in ("list", "send"):
        text = (BUNDLED_PROFILES / "dummy.toml").read_text(encoding="utf-8")
        (profiles / f"{name}.toml").write_text(text, encoding="utf-8")

        assert main(["synapse", "start", name, "--port", str(own_port()), "--no-instructions"]) == 0
        assert main(["synapse", "restart", name]) == 0

    assert sorted(entry.agent_type for entry in registry.entries()) == ["list", "send"]
