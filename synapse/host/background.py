"""How a host without a terminal is started: its command line, and its environment.

Starting and ending hosts that have no terminal: each wait is for a condition, with a bound.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from synapse.client.hosts import ask, is_suspended, suspended_hint
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
from synapse.registry.files import FileRegistry, catches, is_alive, is_running

LAUNCHED_BY: Final = "SYNAPSE_LAUNCHED_BY"
"""Says in a host's environment which agent started it: the host outlives the command, and so loses its ancestors."""
_OF_ANOTHER_AGENT: Final = ("SYNAPSE_AGENT_ID", "SYNAPSE_SOCKET")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What `synapse PROFILE …` is to be started with; `verb` is the profile, or `scripted` and its file."""

    verb: Sequence[str]
    name: str = ""
    port: int | None = None
    instructions: bool = True
    arguments: Sequence[str] = ()
    folder: str | None = None

    def command(self) -> list[str]:
        """The command line of the host."""
        options = [
            *(["--name", self.name] if self.name else []),
            *(["--port", str(self.port)] if self.port else []),
            *([] if self.instructions else ["--no-instructions"]),
        ]
        rest = ["--", *self.arguments] if self.arguments else []
        # -P: a folder named `synapse` where the agent works must not be taken for this package.
        return [sys.executable, "-P", "-m", "synapse.cli.main", *self.verb, "--headless", "--json", *options, *rest]


def host_environment() -> dict[str, str]:
    """Ours, without what names the agent that we may run in: the new one is another."""
    return {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_AGENT}


def begin_again(port: int) -> NoReturn:
    """Become a new host that is started as this one was: same program, options and environment, and the same port.

    Raises OSError.
    """
    words = sys.orig_argv[1:]
    end = words.index("--") if "--" in words else len(words)
    wished = [] if "--port" in words[:end] else ["--port", str(port)]
    os.execv(sys.executable, [sys.executable, *words[:end], *wished, *words[end:]])  # noqa: S606 - our own command line


# Longer than a host waits for the store's lock and then needs to give up: what it says is better than our silence.
START_SECONDS: Final = 40.0
STOP_SECONDS: Final = 10.0
TICK_SECONDS: Final = 0.02
LOG_LINES_SHOWN: Final = 20
EXTERNAL: Final = "a2a"
"""The type of agents from elsewhere."""
SMALLEST_ROOM: Final = 64 * 1024


def start_host(launch: Launch, registry: FileRegistry, logs: Path) -> AgentEntry:
    """Start a host and return its entry once it accepts messages.

    Raises:
        AgentExited: it ended at once; the hint has the last lines of what it said.
        AgentUnresponsive: it did not come up in time.
    """
    make_private(logs)
    said = logs / f"start-{Path(launch.verb[0]).name}-{os.getpid()}.log"
    with os.fdopen(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        # The command is our own interpreter and our own module.
        host = subprocess.Popen(  # noqa: S603 - see above
            launch.command(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=launch.folder,
            env=host_environment(),
        )
    try:
        entry = _wait_until_it_answers(host, registry, said)
    except (KeyboardInterrupt, AgentUnresponsive, ConnectionForbidden):
        host.terminate()
        raise
    finally:
        # Should we live longer than it, somebody has to take note of its end.
        threading.Thread(target=host.wait, daemon=True).start()
    said.replace(logs / f"{entry.agent_id}.out")
    return entry


def require_own_process(entry: AgentEntry) -> None:
    """Raises UnsupportedOperation for an agent that lives inside a gateway: its process is the gateway's."""
    if entry.gateway:
        external = entry.agent_type == EXTERNAL
        away = f"`synapse external remove {entry.name}` forgets it" if external else "take it out of gateway.toml"
        raise UnsupportedOperation(
            f"{entry.agent_id} lives in {entry.gateway}, and ends with it",
            hint=f"{away}; `synapse stop {entry.gateway}` ends the gateway",
        )


def stop_host(entry: AgentEntry, registry: FileRegistry, *, force: bool = False) -> None:
    """End the host of `entry` and wait until it is gone.

    Raises:
        UnsupportedOperation: it has no process of its own, or none that can be seen from here.
        AgentUnresponsive: it is still there after a while; `force` kills it instead.
    """
    require_own_process(entry)
    if is_running(entry.pid, entry.pid_started):
        os.kill(entry.pid, signal.SIGTERM)
        if is_suspended(entry):
            # It ends by itself, and its program with it, once it can hear that it shall. One that was stopped in its
            # terminal cannot: a background job may not set it back.
            os.kill(entry.pid, signal.SIGCONT)
        if not _wait_until_gone(entry, STOP_SECONDS):
            if not force:
                by_force = f"synapse stop {entry.agent_id} --force"
                raise AgentUnresponsive(
                    f"{entry.agent_id} (pid {entry.pid}) did not end within {STOP_SECONDS:.0f} s",
                    hint=f"{suspended_hint(entry)}; or `{by_force}`" if is_suspended(entry) else by_force,
                )
            os.kill(entry.pid, signal.SIGKILL)
            _wait_until_gone(entry, STOP_SECONDS)
    elif is_alive(entry):
        raise UnsupportedOperation(
            f"the process of {entry.agent_id} cannot be seen from here, so it cannot be ended",
            hint="run the command outside of the sandbox",
        )
    registry.remove_dead(entry)


def let_begin_again(entry: AgentEntry, registry: FileRegistry, logs: Path) -> AgentEntry:
    """Tell a host to begin again as it was started, and return its new entry once it accepts messages.

    Raises:
        UnsupportedOperation: it cannot, being of an earlier version, or cannot be seen from here.
        AgentExited: it ended instead; the hint has the last lines of what it said.
        AgentUnresponsive: it did not come up in time.
    """
    if not is_running(entry.pid, entry.pid_started) or not catches(entry.pid, signal.SIGUSR1):
        raise UnsupportedOperation(
            f"{entry.agent_id} cannot be told to begin again, and an agent may not start it anew with other rights",
            hint=f"a person types `synapse restart {entry.agent_id}` in a shell of their own",
        )
    os.kill(entry.pid, signal.SIGUSR1)
    clock = SystemClock()
    deadline = clock.monotonic() + START_SECONDS
    while clock.monotonic() < deadline:
        again = next((one for one in registry.written() if one.pid == entry.pid), None)
        if again is not None and again.started_at != entry.started_at and _answers(again):
            return again
        if _wait_until_gone(entry, TICK_SECONDS):
            said = logs / f"{entry.agent_id}.out"
            lines = said.read_text(encoding="utf-8", errors="replace").splitlines() if said.exists() else []
            raise AgentExited(
                "the host ended, and did not begin again", hint="\n".join(lines[-LOG_LINES_SHOWN:]) or "it said nothing"
            )
    raise AgentUnresponsive(
        f"{entry.agent_id} (pid {entry.pid}) did not come up within {START_SECONDS:.0f} s",
        hint=f"synapse logs {entry.agent_id}",
    )


def _wait_until_it_answers(host: subprocess.Popen[bytes], registry: FileRegistry, said: Path) -> AgentEntry:
    clock = SystemClock()
    deadline = clock.monotonic() + START_SECONDS
    while clock.monotonic() < deadline:
        entry = next((entry for entry in registry.written() if entry.pid == host.pid), None)
        if entry is not None and _answers(entry):
            return entry
        try:
            # Its end is worth waking up for; a new file in the registry tells nobody.
            status = host.wait(TICK_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        raise _failed_start(said, f"the host ended at once (exit code {status})")
    raise AgentUnresponsive(f"the host did not come up within {START_SECONDS:.0f} s", hint=f"see {said}")


def _answers(entry: AgentEntry) -> bool:
    """Raises ConnectionForbidden where this process may not ask."""
    try:
        body = ask(entry, "GET", "/status", timeout=1.0)
    except ConnectionForbidden:
        raise
    except SynapseError:
        return False
    # Its program was gone before anybody could send to it; the host is about to say why.
    return body.get("state") != EXITED


def _failed_start(said: Path, why: str) -> SynapseError:
    """What a host that ended at once has said: its own error if it foresaw it, else its last lines."""
    lines = said.read_text(encoding="utf-8", errors="replace").splitlines()
    full = None if lines else _full_disk(said)
    said.unlink()
    if full is not None:
        return full
    for line in reversed(lines):
        try:
            told = object_in(decode_object(line.encode()), "error")
        except ValueError:
            continue
        if told:
            return from_wire(told, why)
    return AgentExited(why, hint="\n".join(lines[-LOG_LINES_SHOWN:]) or "it said nothing")


def _full_disk(said: Path) -> StoreFull | None:
    """A host that finds no room for its store finds none for its last words either."""
    try:
        with said.open("wb") as file:
            file.write(bytes(SMALLEST_ROOM))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreFull(f"no space left at {said.parent}", hint=f"free some space: `df -h {said.parent}`")
    return None


def _wait_until_gone(entry: AgentEntry, seconds: float) -> bool:
    if hasattr(os, "pidfd_open"):
        return _wait_for_end_of(entry, seconds)
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    while is_running(entry.pid, entry.pid_started) and clock.monotonic() < deadline:
        select.select([], [], [], TICK_SECONDS)
    return not is_running(entry.pid, entry.pid_started)


def _wait_for_end_of(entry: AgentEntry, seconds: float) -> bool:
    try:
        process = os.pidfd_open(entry.pid)
    except ProcessLookupError:
        return True
    try:
        select.select([process], [], [], seconds)
    finally:
        os.close(process)
    return not is_running(entry.pid, entry.pid_started)
