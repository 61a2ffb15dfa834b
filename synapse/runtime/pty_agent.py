"""`synapse PROFILE`: a CLI on a pseudo-terminal as an agent, in a person's terminal or in the background."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from synapse.attach.person import PersonTerminal
from synapse.attach.server import AttachServer
from synapse.core.agent import AgentEntry
from synapse.drivers.pty.composer import Composer
from synapse.drivers.pty.desk import LineRouting
from synapse.drivers.pty.driver import PtyDriver
from synapse.drivers.pty.pump import PersonStreams
from synapse.drivers.pty.running_program import Company, RunningProgram, start_program
from synapse.drivers.pty.spawn import Launch, find_command
from synapse.registries.files import FileRegistry
from synapse.runtime.agent_command import AgentCommand, launch_folder
from synapse.runtime.cli_signals import CliSignals
from synapse.runtime.host import run_host
from synapse.runtime.last_words import say, tell_end, tell_left
from synapse.runtime.logs import log_to
from synapse.runtime.loop import new_loop
from synapse.runtime.person_lines import PersonLines
from synapse.runtime.place import take_place
from synapse.runtime.profiles import load_profile
from synapse.runtime.running_agent import RunningAgent
from synapse.runtime.settings import Settings
from synapse.runtime.system_clock import SystemClock
from synapse.service.acceptance import ANYTHING, TEXT, Acceptance
from synapse.terminal.profile import Profile
from synapse.transports.lineage import TERMINAL_DEMANDED

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
    place = take_place(
        profile.name, range(first, last + 1), name=name, port=port, settings=settings, clock=SystemClock()
    )
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
    composer = Composer(settings.files, profile.limit_bytes, envelope=profile.envelope)
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
        say_goodbye=lambda left: tell_left(me, left, is_person_there=person is not None),
        on_served=program.load_screen,
        acceptance=acceptance_of(profile),
        extensions=profile.extensions,
        lacks=profile.lacks,
        hook_door=signals.door,
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
            await asyncio.to_thread(tell_end, program, driver)
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
    plain: Launch, arguments: tuple[str, ...], profile: Profile, company: Company, signals: CliSignals
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


def _company(person: PersonTerminal | None, routing: LineRouting) -> Company:
    """Who is at the terminal; those who attach later type `@agent` lines too."""
    if person is None:
        return Company(routing=routing)
    return Company(person=PersonStreams(person.source, person.sink), routing=routing, suspend=person.suspend)


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
