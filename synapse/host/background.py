"""Starts, stops and restarts hosts that have no terminal. Every wait is for a condition, with a bound."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from synapse.client.hosts import AGENT_VARIABLE, SOCKET_VARIABLE, ask, is_suspended, suspended_hint
from synapse.config.private_files import make_private
from synapse.config.process import SystemClock
from synapse.core.agent import EXITED, AgentEntry
from synapse.core.errors import (
    AgentExited,
    AgentUnresponsive,
    ConnectionForbidden,
    StoreFull,
    SynapseError,
    UnsupportedOperation,
    from_wire,
)
from synapse.core.json_text import decode_object, object_in
from synapse.host.conversations import RESUME
from synapse.host.ends import EndReason, HostEnd, write_end
from synapse.host.membership import NO_MEMBERSHIP, Membership
from synapse.registry.files import FileRegistry, catches, is_alive, is_running

LAUNCHED_BY: Final = "SYNAPSE_LAUNCHED_BY"
"""The environment variable that names the agent that started a host: the host outlives the command that started it,
and so loses its ancestors.
"""
RESTART: Final = signal.SIGUSR1
"""Tells a host to restart with its own command line. Its sender cannot give the host any further rights."""
RESTART_FRESH: Final = signal.SIGUSR2
"""As RESTART; its CLI begins a new conversation."""
# Longer than a host waits for the store's lock and then needs to exit, so that its own error is shown.
START_SECONDS: Final = 40.0
STOP_SECONDS: Final = 10.0
TICK_SECONDS: Final = 0.02
LOG_LINES_SHOWN: Final = 20
EXTERNAL: Final = "a2a"
"""The type of external agents."""
_PROBE_BYTES: Final = 64 * 1024
BACKGROUND_TERM: Final = "xterm-256color"
# What names the terminal, the pane or the window in which a command was typed. A program that finds them draws for a
# terminal that it does not have, or acts on a person's pane. What a person wishes of every program stays (NO_COLOR),
# and so does how the machine is reached (SSH_CONNECTION, DISPLAY).
_TERMINAL_VARIABLES: Final = frozenset(
    (
        *("TERM", "COLORTERM", "COLORFGBG", "TERMCAP", "COLUMNS", "LINES", "GPG_TTY"),
        *("TERM_SESSION_ID", "LC_TERMINAL", "LC_TERMINAL_VERSION", "TERMINAL_EMULATOR", "INSIDE_EMACS"),
        *("TMUX", "TMUX_PANE", "STY", "WINDOW", "ZELLIJ", "WINDOWID", "VTE_VERSION"),
        *("WT_SESSION", "WT_PROFILE_ID", "TILIX_ID", "TERMINATOR_UUID"),
    )
)
_TERMINAL_PREFIXES: Final = (
    *("TERM_PROGRAM", "ZELLIJ_", "KITTY_", "WEZTERM_", "ITERM_", "ALACRITTY_", "GHOSTTY_", "KONSOLE_"),
    *("GNOME_TERMINAL_", "XTERM_", "FOOT_", "RIO_"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLaunch:
    """The options of `synapse PROFILE …` for a host; `verb` is the profile, or `scripted` and its file."""

    verb: Sequence[str]
    name: str = ""
    port: int | None = None
    instructions: bool = True
    mcp: bool = True
    arguments: Sequence[str] = ()
    folder: str | None = None
    membership: Membership = NO_MEMBERSHIP
    resume: bool = field(default=False, compare=False)
    """Whether it goes on with the conversation of the agent's last run; two launches that differ in it are the same."""

    def command(self) -> list[str]:
        """Returns the command line of the host."""
        options = [
            *(["--name", self.name] if self.name else []),
            *(["--port", str(self.port)] if self.port else []),
            *([] if self.instructions else ["--no-instructions"]),
            *([] if self.mcp else ["--no-mcp"]),
            *self.membership.options(),
            *([RESUME] if self.resume else []),
        ]
        rest = ["--", *self.arguments] if self.arguments else []
        # -P: a folder named `synapse` in the working directory must not be imported as this package.
        return [sys.executable, "-P", "-m", "synapse.cli.main", *self.verb, "--headless", "--json", *options, *rest]


def host_environment() -> dict[str, str]:
    """Returns the environment for a host without a terminal, which the host's agent gets too.

    It is this process's, without the variables of the agent that it may run in and of the terminal that it was started
    in. Its agent's terminal has 256 colours, and the size and theme of the settings.
    """
    kept = {
        name: value
        for name, value in persons_environment().items()
        if name not in _TERMINAL_VARIABLES and not name.startswith(_TERMINAL_PREFIXES)
    }
    return {**kept, "TERM": BACKGROUND_TERM}


def persons_environment() -> dict[str, str]:
    """Returns this process's environment without the variables of the agent that it may run in."""
    return {name: value for name, value in os.environ.items() if name not in (AGENT_VARIABLE, SOCKET_VARIABLE)}


def restart_process(port: int, *, resume: bool) -> NoReturn:
    """Executes this host anew with its program, options, environment and port. Raises OSError."""
    arguments = sys.orig_argv[1:]
    end = arguments.index("--") if "--" in arguments else len(arguments)
    ours = [argument for argument in arguments[:end] if argument != RESUME]
    ours += [] if "--port" in ours else ["--port", str(port)]
    ours += [RESUME] if resume else []
    os.execv(sys.executable, [sys.executable, *ours, *arguments[end:]])  # noqa: S606 - our own command line


def start_host(
    launch: HostLaunch, registry: FileRegistry, logs: Path, env: Mapping[str, str] | None = None
) -> AgentEntry:
    """Starts a host, with `host_environment` unless another is given; returns its entry once it accepts messages.

    Raises:
        AgentExited: it ended at once; the hint has the last lines of its output.
        AgentUnresponsive: it did not start in time.
    """
    make_private(logs)
    output_file = logs / f"start-{Path(launch.verb[0]).name}-{os.getpid()}.log"
    with os.fdopen(os.open(output_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        # The command is our own interpreter and our own module.
        host = subprocess.Popen(  # noqa: S603 - see above
            launch.command(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=launch.folder,
            # Some programs take PWD for their folder.
            env={**(host_environment() if env is None else env), **({"PWD": launch.folder} if launch.folder else {})},
        )
    try:
        entry = wait_until_it_answers(
            host, "the host", output_file, partial(_answering_host, host.pid, registry), _failed_start
        )
    except (KeyboardInterrupt, AgentUnresponsive, ConnectionForbidden):
        host.terminate()
        raise
    finally:
        # Reaps the host if this process outlives it.
        threading.Thread(target=host.wait, daemon=True).start()
    output_file.replace(logs / f"{entry.agent_id}.out")
    return entry


def require_own_process(entry: AgentEntry) -> None:
    """Raises UnsupportedOperation for an in-process agent, whose process is its gateway's."""
    if entry.gateway:
        external = entry.agent_type == EXTERNAL
        removal = f"`synapse external remove {entry.name}` removes it" if external else "remove it from gateway.toml"
        raise UnsupportedOperation(
            f"{entry.agent_id} runs in {entry.gateway}, and stops with it",
            hint=f"{removal}; `synapse stop {entry.gateway}` stops the gateway",
        )


def stop_host(entry: AgentEntry, registry: FileRegistry, *, force: bool = False) -> None:
    """Stops the host of `entry` and waits until it has exited.

    Raises:
        UnsupportedOperation: it has no process of its own, or one that is not visible from here.
        AgentUnresponsive: it did not exit in time; `force` kills it instead.
    """
    require_own_process(entry)
    if is_running(entry.pid, entry.pid_started):
        _record_stop(entry, registry)
        os.kill(entry.pid, signal.SIGTERM)
        if is_suspended(entry):
            # It handles the signal, and ends its program, once it is continued. A host that was suspended in its
            # terminal stays suspended: a background job may not restore the terminal's settings.
            os.kill(entry.pid, signal.SIGCONT)
        if not _wait_until_gone(entry, STOP_SECONDS):
            if not force:
                kill = f"synapse stop {entry.agent_id} --force"
                raise AgentUnresponsive(
                    f"{entry.agent_id} (pid {entry.pid}) did not exit within {STOP_SECONDS:.0f} s",
                    hint=f"{suspended_hint(entry)}; or `{kill}`" if is_suspended(entry) else kill,
                )
            os.kill(entry.pid, signal.SIGKILL)
            _wait_until_gone(entry, STOP_SECONDS)
    elif is_alive(entry):
        raise UnsupportedOperation(
            f"the process of {entry.agent_id} is not visible from here, so it cannot be stopped",
            hint="run the command outside of the sandbox",
        )
    else:
        _record_stop(entry, registry)
    registry.remove_dead(entry)


def _record_stop(entry: AgentEntry, registry: FileRegistry) -> None:
    """Records that a host was stopped, before it is: the keeper of its team must not start it again.

    The host records that itself, but not if it has to be killed, or is just executing itself anew.
    """
    at = SystemClock().now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
    # The registry is a folder inside the state folder. A full disk must not prevent the stop.
    with suppress(OSError):
        write_end(Path(registry.folder).parent, entry, HostEnd(reason=EndReason.STOPPED, at=at))


def restart_host(entry: AgentEntry, registry: FileRegistry, logs: Path, *, resume: bool = True) -> AgentEntry:
    """Tells a host to restart with its own command line, and returns its new entry once it accepts messages.

    Its CLI goes on with its conversation if `resume`, and begins anew otherwise.

    Raises:
        UnsupportedOperation: its version cannot restart, or its process is not visible from here.
        AgentExited: it ended instead; the hint has the last lines of its output.
        AgentUnresponsive: it did not start in time.
    """
    order = RESTART if resume else RESTART_FRESH
    if not is_running(entry.pid, entry.pid_started) or not catches(entry.pid, order):
        raise UnsupportedOperation(
            f"{entry.agent_id} cannot restart itself, and an agent may not start it with other rights",
            hint=f"a person can run `synapse restart {entry.agent_id}` in their own shell",
        )
    os.kill(entry.pid, order)
    clock = SystemClock()
    deadline = clock.monotonic() + START_SECONDS
    while clock.monotonic() < deadline:
        again = next((one for one in registry.written() if one.pid == entry.pid), None)
        if again is not None and again.started_at != entry.started_at and _answers(again):
            return again
        if _wait_until_gone(entry, TICK_SECONDS):
            output = logs / f"{entry.agent_id}.out"
            lines = output.read_text(encoding="utf-8", errors="replace").splitlines() if output.exists() else []
            raise AgentExited(
                "the host exited instead of restarting",
                hint="\n".join(lines[-LOG_LINES_SHOWN:]) or "it printed nothing",
            )
    raise AgentUnresponsive(
        f"{entry.agent_id} (pid {entry.pid}) did not start within {START_SECONDS:.0f} s",
        hint=f"synapse logs {entry.agent_id}",
    )


def wait_until_it_answers(
    process: subprocess.Popen[bytes],
    called: str,
    output: Path,
    find: Callable[[], AgentEntry | None],
    failed_start: Callable[[Path, str], SynapseError],
) -> AgentEntry:
    """Returns the entry of a process that was started, once `find` returns it because the process answers.

    `called` names the process to people, as `the link`; it prints to `output`.

    Raises:
        SynapseError: it ended at once; the error is what `failed_start` makes of its output.
        AgentUnresponsive: it did not start in time.
    """
    clock = SystemClock()
    deadline = clock.monotonic() + START_SECONDS
    while clock.monotonic() < deadline:
        entry = find()
        if entry is not None:
            return entry
        try:
            # Wakes up when the process exits; its entry is polled.
            status = process.wait(TICK_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        raise failed_start(output, f"{called} exited at once (exit code {status})")
    raise AgentUnresponsive(f"{called} did not start within {START_SECONDS:.0f} s", hint=f"see {output}")


def printed_error(lines: Sequence[str], why: str) -> SynapseError | None:
    """Returns the last error that a process has printed; None if it printed none."""
    for line in reversed(lines):
        try:
            printed = object_in(decode_object(line.encode()), "error")
        except ValueError:
            continue
        if printed:
            return from_wire(printed, why)
    return None


def _answering_host(pid: int, registry: FileRegistry) -> AgentEntry | None:
    entry = next((entry for entry in registry.written() if entry.pid == pid), None)
    return entry if entry is not None and _answers(entry) else None


def _answers(entry: AgentEntry) -> bool:
    """Returns whether the agent is running. Raises ConnectionForbidden where this process may not connect."""
    try:
        body = ask(entry, "GET", "/status", timeout=1.0)
    except ConnectionForbidden:
        raise
    except SynapseError:
        return False
    # When its program has exited already, the host is about to report why.
    return body.get("state") != EXITED


def _failed_start(output: Path, why: str) -> SynapseError:
    """Returns the error that a host printed before it exited, or one with its last lines."""
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    disk_full = None if lines else _disk_full_error(output)
    output.unlink()
    if disk_full is not None:
        return disk_full
    last = "\n".join(lines[-LOG_LINES_SHOWN:])
    return printed_error(lines, why) or AgentExited(why, hint=last or "it printed nothing")


def _disk_full_error(output: Path) -> StoreFull | None:
    """Returns StoreFull if the disk is full: then a host could not write its store, nor the error about it."""
    try:
        with output.open("wb") as file:
            file.write(bytes(_PROBE_BYTES))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreFull(f"no space left at {output.parent}", hint=f"free some space: `df -h {output.parent}`")
    return None


def _wait_until_gone(entry: AgentEntry, seconds: float) -> bool:
    if not hasattr(os, "pidfd_open"):
        clock = SystemClock()
        deadline = clock.monotonic() + seconds
        while is_running(entry.pid, entry.pid_started) and clock.monotonic() < deadline:
            select.select([], [], [], TICK_SECONDS)
        return not is_running(entry.pid, entry.pid_started)
    try:
        process = os.pidfd_open(entry.pid)
    except ProcessLookupError:
        return True
    try:
        select.select([process], [], [], seconds)
    finally:
        os.close(process)
    return not is_running(entry.pid, entry.pid_started)
