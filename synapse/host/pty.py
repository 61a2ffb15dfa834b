"""`synapse PROFILE`: a CLI on a pseudo-terminal as an agent, in a person's terminal or in the background.

Listening to what a CLI says of itself: the adapter of its profile, with what one launch gives it.

What is said when an agent ends: what a program in the background showed that nobody sat at, and what still waits.

What a person types as `@agent text` at their agent's prompt goes from that agent to the other.

Which adapter listens to which CLI; a profile names it in `[signals]`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from synapse.attach.person import PersonTerminal
from synapse.attach.server import AttachServer
from synapse.client.http import HostAddress, NoAnswer, request
from synapse.config.process import SystemClock, log_to, new_id, new_loop
from synapse.config.settings import Settings, load_profile
from synapse.core.address import resolve, short_name
from synapse.core.agent import AgentEntry
from synapse.core.errors import InvalidProfile, SynapseError
from synapse.core.question import Choice
from synapse.core.requests import SECRET_HEADER
from synapse.core.task import Task
from synapse.core.text import sanitise, typed_sender
from synapse.drivers.pty.adapters.adapter import Adapter, LaunchContext, Listener, Sender
from synapse.drivers.pty.adapters.claude import ClaudeSignals
from synapse.drivers.pty.adapters.codex import CodexAppServerSignals, CodexSignals
from synapse.drivers.pty.adapters.copilot import CopilotSignals
from synapse.drivers.pty.adapters.gemini import GeminiSignals
from synapse.drivers.pty.adapters.opencode import OpenCodeSignals
from synapse.drivers.pty.context import describe_exit
from synapse.drivers.pty.driver import PtyDriver
from synapse.drivers.pty.person_input import LineRouting
from synapse.drivers.pty.process import Launch, find_command
from synapse.drivers.pty.program import RunningProgram, TerminalUsers, start_program
from synapse.drivers.pty.prompt_files import PromptFiles
from synapse.drivers.pty.pump import PersonStreams
from synapse.host.agent import RunningAgent
from synapse.host.agent_command import AgentCommand, launch_folder
from synapse.host.host import run_host
from synapse.host.identity import reserve
from synapse.registry.files import FileRegistry, is_stopped
from synapse.server.lineage import TERMINAL_DEMANDED
from synapse.tasks.admission import ANYTHING, TEXT, Acceptance
from synapse.tasks.service import HookEndpoint
from synapse.terminal.profile import Profile

log = logging.getLogger(__name__)

_LAST_LINES: Final = 20


def run_agent(  # noqa: PLR0913 - what a person can say on the command line
    profile_name: str,
    *,
    name: str,
    port: int | None,
    arguments: Sequence[str],
    headless: bool,
    instructions: bool,
    settings: Settings,
) -> int:
    """Run an agent until its program ends; return that program's exit status.

    Raises UnknownProfile, CommandMissing, PortTaken, NameTaken, StoreFailed or InvalidSettings before it has begun.
    """
    profile = load_profile(profile_name, settings.profile_sources)
    # Said at once, not after a store was opened and a port was taken.
    find_command(profile.command[0], os.environ, profile.install_hint)
    first, last = profile.ports
    place = reserve(profile.name, range(first, last + 1), name=name, port=port, settings=settings, clock=SystemClock())
    log_to(settings.logs, place.entry.agent_id, name)

    person = None if headless else PersonTerminal()

    async def start(me: AgentEntry) -> RunningAgent:
        return await _start(me, profile, tuple(arguments), settings, person)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(run_host(place, start, settings, instructions=instructions and profile.instructions))


async def _start(
    me: AgentEntry, profile: Profile, arguments: tuple[str, ...], settings: Settings, person: PersonTerminal | None
) -> RunningAgent:
    clock = SystemClock()
    command = AgentCommand(launch_folder(settings.home, me.agent_id))
    plain = _launch(me, profile, arguments, settings, person, command)
    signals = CliSignals(me, profile, settings, plain.env)
    lines = PersonLines(me, FileRegistry(settings.registry))
    company = _company(person, LineRouting(lines.resolve, lines.send))
    program = await _start_program(plain, arguments, profile, company, signals)
    lines.say = program.say
    composer = PromptFiles(settings.files, profile.limit_bytes, envelope=profile.envelope)
    driver = PtyDriver(program, profile, clock, composer)
    signals.start(driver, program.pid)
    driver.use(signals.look, signals.answer, signals.sender)
    if person is not None:
        person.enter()
        person.follow_size(asyncio.get_running_loop(), program.resize)
    program.begin()
    return RunningAgent(
        driver=driver,
        stop=_stopper(program, driver, signals, command, person),
        exit_status=lambda: program.exit_status,
        title=profile.title,
        ends_with=program.exited,
        cli_pid=program.pid,
        on_stopped=lambda left: report_queued_messages(me, left, is_person_there=person is not None),
        on_served=program.load_screen,
        acceptance=acceptance_of(profile),
        extensions=profile.extensions,
        lacks=profile.lacks,
        hook_endpoint=signals.door,
        websockets={"/attach": AttachServer(program, agents_may_attach=settings.agents_may_approve)},
    )


def _stopper(
    program: RunningProgram,
    driver: PtyDriver,
    signals: CliSignals,
    command: AgentCommand,
    person: PersonTerminal | None,
) -> Callable[[], Awaitable[None]]:
    """What ends the agent; safe to be called again."""
    has_stopped = False

    async def stop() -> None:
        nonlocal has_stopped
        is_first, has_stopped = not has_stopped, True
        has_left = program.exited.done() and is_first
        await driver.stop()
        if has_left and person is None:
            await asyncio.to_thread(report_exit, program, driver)
        if person is not None:
            person.restore(program.leaving_bytes())
            correction = signals.correction("".join(program.screen.history(_LAST_LINES))) if is_first else ""
            if correction:
                say(correction)
        signals.stop()
        command.remove()

    return stop


def acceptance_of(profile: Profile) -> Acceptance:
    """What a program takes: files lie beside a message, and whoever can read is told where.

    One that takes every line for its own language, which is why its profile leaves the envelope out, takes texts.
    """
    return ANYTHING if profile.envelope else Acceptance(media_types=TEXT)


async def _start_program(
    plain: Launch, arguments: tuple[str, ...], profile: Profile, company: TerminalUsers, signals: CliSignals
) -> RunningProgram:
    """Start the CLI so that it tells what it does."""
    launch = await asyncio.to_thread(signals.prepare, plain, arguments)
    try:
        return await start_program(launch, profile, SystemClock(), company)
    except BaseException:
        signals.stop()
        raise


def _launch(
    me: AgentEntry,
    profile: Profile,
    arguments: tuple[str, ...],
    settings: Settings,
    person: PersonTerminal | None,
    command: AgentCommand,
) -> Launch:
    columns, rows = person.size() if person else settings.terminal_size
    return Launch(
        command=(*profile.command, *profile.args, *arguments),
        env=_environment(me, profile, settings, command),
        columns=columns,
        rows=rows,
        theme=settings.terminal_theme,
        install_hint=profile.install_hint,
        person_terminal=person.source if person and person.is_terminal else None,
        settings=person.settings if person else None,
    )


def _company(person: PersonTerminal | None, routing: LineRouting) -> TerminalUsers:
    """Who is at the terminal; those who attach later type `@agent` lines too."""
    if person is None:
        return TerminalUsers(routing=routing)
    return TerminalUsers(person=PersonStreams(person.source, person.sink), routing=routing, suspend=person.suspend)


def _environment(me: AgentEntry, profile: Profile, settings: Settings, command: AgentCommand) -> dict[str, str]:
    """What the CLI gets: ours, the profile's, who it is, and where its shells find the `synapse` command."""
    identity = {
        "SYNAPSE_AGENT_ID": me.agent_id,
        "SYNAPSE_SOCKET": me.socket,
        "SYNAPSE_HOME": str(settings.home),
        "TERM": os.environ.get("TERM") or "xterm-256color",
    }
    strictness = dict([TERMINAL_DEMANDED]) if settings.terminal_decides else {}
    env = {**os.environ, **profile.env, **identity, **strictness}
    try:
        return command.environment(env)
    except OSError as error:
        # The agent's instructions name the command's path as well.
        log.warning("command_not_made", extra={"error": str(error)})
        return env


class CliSignals:
    """The signals of one launch; an agent whose profile names no adapter has none, and all of this does nothing."""

    def __init__(self, me: AgentEntry, profile: Profile, settings: Settings, env: Mapping[str, str]) -> None:
        self._secret = secrets.token_urlsafe(24)
        around = LaunchContext(
            folder=launch_folder(settings.home, me.agent_id),
            # Not by the name `localhost`: it may mean ::1 first, where nobody listens.
            url=f"http://127.0.0.1:{me.port}/signals",
            secret_header=SECRET_HEADER,
            secret=self._secret,
            command=profile.command[0],
            env=env,
            working_dir=Path(me.working_dir),
            flags_file=settings.home / "cli_flags.json",
            new_session=new_id(),
            start_command=start_command(me),
            started=me.started_at,
        )
        self._adapter: Adapter | None = adapter_for(profile, around)

    @property
    def door(self) -> HookEndpoint | None:
        """Where its hooks report to."""
        return HookEndpoint(secret=self._secret, receive=self._adapter.receive) if self._adapter else None

    def prepare(self, launch: Launch, arguments: tuple[str, ...]) -> Launch:
        """Return the launch with what switches the signals on; `arguments` are the last of its command."""
        if self._adapter is None:
            return launch
        prepared = self._adapter.prepare(arguments)
        command = launch.command[: len(launch.command) - len(arguments)]
        return replace(launch, command=(*command, *prepared.arguments), env={**launch.env, **prepared.env})

    def start(self, listener: Listener, pid: int) -> None:
        if self._adapter is not None:
            self._adapter.start(listener, pid)

    def look(self) -> None:
        if self._adapter is not None:
            self._adapter.look()

    async def answer(self, question_id: str, choice: Choice) -> bool:
        """Answer a question its own way; False when it has none."""
        return self._adapter is not None and await self._adapter.answer(question_id, choice)

    def sender(self) -> Sender | None:
        """What hands messages over without typing, if there is something now."""
        return self._adapter.sender() if self._adapter else None

    def correction(self, shown: str) -> str:
        """What a person has to know whom its last words mislead; empty when they do not."""
        return self._adapter.correction(shown) if self._adapter else ""

    def stop(self) -> None:
        if self._adapter is not None:
            self._adapter.stop()


_LINES: Final = 15
_LOAD_SECONDS: Final = 2.0
_MOST_LEFT: Final = 5
_LONGEST_TEXT: Final = 60


def report_queued_messages(me: AgentEntry, tasks: Sequence[Task], *, is_person_there: bool) -> None:
    """Say which messages wait for the agent's next start: whoever leaves its program may not know of them."""
    if not tasks:
        return
    log.info("messages_left", extra={"count": len(tasks)})
    if not is_person_there:
        return
    name = short_name(me)
    wait = "1 message waits" if len(tasks) == 1 else f"{len(tasks)} messages wait"
    shown = [
        f"  {task.short_id} from {typed_sender(task.metadata)}: {_beginning(task.message.text)}"
        for task in tasks[:_MOST_LEFT]
    ]
    if len(tasks) > _MOST_LEFT:
        shown.append(f"  and {len(tasks) - _MOST_LEFT} more  (synapse queue)")
    say(f"{wait} for {name}, and will be delivered when it is started again  ({start_command(me)})", *shown)


def start_command(me: AgentEntry) -> str:
    """How a person starts the agent again, so that it has the same queue."""
    return f"synapse {me.agent_type}" + (f" --name {shlex.quote(me.name)}" if me.name else "")


def say(*lines: str) -> None:
    """Print lines on stderr. A full disk or a terminal that is gone: the agent has ended all the same."""
    with suppress(OSError):
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()


def _beginning(text: str) -> str:
    line = " ".join(sanitise(text).split())
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"


def report_exit(program: RunningProgram, driver: PtyDriver) -> None:
    """Log the end, and if no message was typed yet, what the terminal showed; `synapse start` reads it on stderr.

    Later it shows conversations, which no log may have.
    """
    status = program.exit_status
    if status is None:
        return
    if driver.typed() or program.pump.last_key != float("-inf"):
        log.info("program_ended", extra={"status": status})
        return
    program.screen.wait_loaded(_LOAD_SECONDS)
    shown = [line.rstrip() for line in program.screen.history(_LINES) if line.strip()]
    log.warning("program_ended", extra={"status": status, "shown": shown})
    title = f"{describe_exit(status)}; its terminal showed{':' if shown else ' nothing'}"
    say(title, *(f"  {line}" for line in shown))


class PersonLines:
    """Resolves and sends. The pump's thread asks; the sending is done by the loop's threads, so nobody waits."""

    def __init__(self, me: AgentEntry, registry: FileRegistry) -> None:
        self._me = me
        self._registry = registry
        self.say: Callable[[str], None] = log.info
        """Tells the person what came of it; set once there is a terminal to say it on."""
        self._loop = asyncio.get_running_loop()
        self._sending: set[asyncio.Task[None]] = set()

    def resolve(self, name: str) -> str:
        """The id of the agent that `name` means, or an empty string: then the line is the program's."""
        try:
            return resolve(
                name, [entry for entry in self._registry.entries() if entry.agent_id != self._me.agent_id]
            ).agent_id
        except SynapseError:
            return ""

    def send(self, agent_id: str, text: str) -> None:
        """Send from any thread; the person is told what came of it."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._begin, agent_id, text)

    def _begin(self, agent_id: str, text: str) -> None:
        sending = asyncio.ensure_future(self._send(agent_id, text))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send(self, agent_id: str, text: str) -> None:
        try:
            told = await asyncio.to_thread(self._deliver, agent_id, text)
        except SynapseError as error:
            told = f"[→ {agent_id}] not sent: {error}  Your text: {text}"
        self.say(told)

    def _deliver(self, agent_id: str, text: str) -> str:
        entry = resolve(agent_id, self._registry.entries())
        sender = {
            "sender_id": self._me.agent_id,
            "sender_type": self._me.agent_type,
            "sender_endpoint": self._me.endpoint,
        }
        body = {
            "message": {"role": "user", "parts": [{"type": "text", "text": text}]},
            "metadata": {"sender": sender},
        }
        name = short_name(entry)

        def stands_still() -> bool:
            return is_stopped(entry.pid, entry.pid_started)

        if stands_still():
            why = f"its process (pid {entry.pid}) is stopped; `kill -CONT {entry.pid}` lets it go on"
            return f"[→ {name}] not sent: {why}  Your text: {text}"
        address = HostAddress(entry.socket, port=entry.port)
        try:
            answer = request(address, "POST", "/tasks/send", body, is_stopped=stands_still)
        except NoAnswer as silence:
            if not silence.sent:
                return f"[→ {name}] not sent: {silence}  Your text: {text}"
            return f"[→ {name}] not confirmed: {silence}; it may still arrive (synapse queue {name})  Your text: {text}"
        if answer.status >= 400:
            why = answer.body.get("error", {}).get("message", answer.status)
            return f"[→ {name}] not sent: {why}  Your text: {text}"
        return f"[→ {name}] sent  (task {answer.body['task']['id'][:8]})"


_ADAPTERS: Final[dict[str, Callable[[LaunchContext], Adapter]]] = {
    "claude": ClaudeSignals,
    "codex": CodexSignals,
    "codex_app_server": CodexAppServerSignals,
    "copilot": CopilotSignals,
    "gemini": GeminiSignals,
    "opencode": OpenCodeSignals,
}


def adapter_for(profile: Profile, around: LaunchContext) -> Adapter | None:
    """Return what listens to the profile's CLI; None when it is known by its screen alone.

    Raises:
        InvalidProfile: it names an adapter that there is not.
    """
    if not profile.signals.adapter:
        return None
    make = _ADAPTERS.get(profile.signals.adapter)
    if make is None:
        raise InvalidProfile(
            f"profile '{profile.name}': signals.adapter must be one of {', '.join(sorted(_ADAPTERS))}",
            hint="leave the table [signals] out for a CLI that is known by its screen alone",
        )
    return make(around)
