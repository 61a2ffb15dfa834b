"""`synapse PROFILE`: runs a CLI on a pseudo-terminal as an agent, in a person's terminal or in the background.

    profile → reserve an identity → adapter prepares the launch → program and PtyDriver → host until the program ends

It also reports how the program ended and which messages still wait.
"""

from __future__ import annotations

import asyncio
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
from synapse.attach.terminal_server import TerminalServer
from synapse.auth.launch import LaunchSecret
from synapse.client.hosts import AGENT_VARIABLE, SOCKET_VARIABLE, WAIT_VARIABLE
from synapse.config import process
from synapse.config.process import SystemClock, log_to, new_id
from synapse.config.settings import Settings, load_profile
from synapse.core.address import short_name
from synapse.core.agent import READY, AgentEntry
from synapse.core.driver import AgentStatus, SendOutcome
from synapse.core.errors import InvalidProfile
from synapse.core.question import Choice
from synapse.core.requests import SECRET_HEADER, ConversationStatus
from synapse.core.task import Task
from synapse.core.text import sanitise
from synapse.core.waiting import pause
from synapse.drivers.pty.adapters.adapter import (
    Adapter,
    ApiSender,
    LaunchContext,
    SignalListener,
    ToolServer,
)
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
from synapse.host.agent_command import AgentCommand, command_path, launch_folder
from synapse.host.conversations import RunRecord
from synapse.host.host import run_host
from synapse.host.identity import reserve
from synapse.host.membership import Membership
from synapse.host.mentions import MentionSender
from synapse.host.tools import AgentTools
from synapse.registry.files import FileRegistry
from synapse.server.lineage import TERMINAL_DEMANDED
from synapse.store.usage import UsageWriter, usage_path
from synapse.tasks.admission import ANYTHING, TEXT, Acceptance
from synapse.tasks.service import HookEndpoint
from synapse.terminal.profile import Profile
from synapse.terminal.reading import compact

log = logging.getLogger(__name__)

_LAST_LINES: Final = 20
_SHOWN_LINES: Final = 15
_SENDER_SECONDS: Final = 2.0
_SENDER_LOOK_SECONDS: Final = 0.1
_LOAD_SECONDS: Final = 2.0
_USAGE_SECONDS: Final = 2.0
"""How long the last numbers may take to be written when the agent ends."""
_MAX_SHOWN_TASKS: Final = 5
_MAX_SHOWN_TEXT: Final = 60
_SWITCHED_OFF: Final = "it was started without the MCP server (--no-mcp, or the setting `mcp`)"
_NO_ADAPTER: Final = "Synapse knows no way to give this program an MCP server"
_ALLOWED_COMMANDS: Final = (
    "synapse reply",
    "synapse send",
    "synapse ask",
    "synapse list",
    "synapse status",
    "synapse guide",
)
"""Narrow on purpose: none of them starts a program or decides for a person."""
_ADAPTERS: Final[dict[str, Callable[[LaunchContext], Adapter]]] = {
    "claude": ClaudeSignals,
    "codex": CodexSignals,
    "codex_app_server": CodexAppServerSignals,
    "copilot": CopilotSignals,
    "gemini": GeminiSignals,
    "opencode": OpenCodeSignals,
}


def run_agent(  # noqa: PLR0913 - the options of the command line
    profile_name: str,
    *,
    name: str,
    port: int | None,
    arguments: Sequence[str],
    headless: bool,
    instructions: bool,
    mcp: bool,
    settings: Settings,
    membership: Membership,
    resume: bool,
) -> int:
    """Runs an agent until its program ends; returns the program's exit status.

    Raises UnknownProfile, CommandMissing, PortTaken, NameTaken, StoreFailed or InvalidSettings before it has started.
    """
    profile = load_profile(profile_name, settings.profile_sources)
    # Checked first, before a port is reserved and the store is opened.
    find_command(profile.command[0], os.environ, profile.install_hint)
    first, last = profile.ports
    ports = range(first, last + 1)
    identity = reserve(
        profile.name, ports, name=name, port=port, settings=settings, clock=SystemClock(), membership=membership
    )
    log_to(settings.logs, identity.entry.agent_id, name)

    person = None if headless else PersonTerminal()

    async def start(me: AgentEntry) -> RunningAgent:
        return await _start(me, profile, tuple(arguments), settings, person, mcp=mcp, resume=resume)

    return process.run(run_host(identity, start, settings, instructions=instructions and profile.instructions))


async def _start(  # noqa: PLR0913 - the options of the command line
    me: AgentEntry,
    profile: Profile,
    arguments: tuple[str, ...],
    settings: Settings,
    person: PersonTerminal | None,
    *,
    mcp: bool,
    resume: bool,
) -> RunningAgent:
    clock = SystemClock()
    folder = launch_folder(settings.home, me.agent_id)
    command, secret = AgentCommand(folder), LaunchSecret(folder)
    try:
        me.launch_key = secret.write()
    except OSError as error:
        # The system proves the agent's processes, except where a sandbox hides them.
        log.warning("launch_secret_not_written", extra={"error": str(error)})
    tools = tools_for(me, profile, settings, mcp=mcp)
    columns, rows = person.size() if person else settings.terminal_size
    plain = Launch(
        command=(*profile.command, *profile.args, *arguments),
        env=_environment(me, profile, settings, command, tools),
        columns=columns,
        rows=rows,
        theme=settings.terminal_theme,
        install_hint=profile.install_hint,
        person_terminal=person.source if person and person.is_terminal else None,
        settings=person.settings if person else None,
    )
    record = RunRecord(settings.home, me, sys.orig_argv, clock)
    signals = CliSignals(me, profile, settings, plain.env, tools, record, resume=resume)
    mentions = MentionSender(me, FileRegistry(settings.registry), clock, shows_answers=settings.mention_answers)
    # People who attach later type `@agent` lines too.
    users = TerminalUsers(routing=LineRouting(mentions.resolve, mentions.send))
    if person is not None:
        users = replace(users, person=PersonStreams(person.source, person.sink), suspend=person.suspend)
    try:
        launch = await asyncio.to_thread(signals.prepare, plain, arguments)
        program = await start_program(launch, profile, clock, users)
    except BaseException:
        signals.stop()
        command.remove()
        secret.remove()
        raise
    mentions.notify = signals.notify = program.say
    prompt_files = PromptFiles(settings.files, profile.limit_bytes, envelope=profile.envelope)
    usage = UsageWriter(usage_path(settings.home), me, clock)
    driver = PtyDriver(program, profile, clock, prompt_files, usage)
    driver.watch(signals.note_status)
    signals.start(driver, program.pid)
    driver.use(signals.recheck, signals.answer, signals.sender)
    if person is not None:
        person.enter()
        person.follow_size(asyncio.get_running_loop(), program.resize)
    program.begin()
    attach = AttachServer(program, agents_may_attach=settings.agents_may_approve)
    return RunningAgent(
        driver=driver,
        stop=_stopper(program, driver, signals, (mentions.stop, command.remove, secret.remove), person, usage),
        exit_status=lambda: program.exit_status,
        title=profile.title,
        ends_with=program.exited,
        cli_pid=program.pid,
        on_stopped=lambda tasks: report_queued_messages(me, tasks, is_person_there=person is not None),
        on_served=program.load_screen,
        reconcile=signals.reconcile,
        conversation=signals.conversation,
        told=signals.told,
        note_told=record.tell,
        acceptance=acceptance_of(profile),
        extensions=profile.extensions,
        lacks=profile.lacks,
        hook_endpoint=signals.hook_endpoint,
        tools=AgentTools(
            clock,
            is_given=bool(tools.command) and not signals.lacks_tools,
            passes_instructions=profile.mcp.instructions,
            has_shell=bool(profile.shell),
            why_not=signals.lacks_tools or (_NO_ADAPTER if mcp else _SWITCHED_OFF),
        ),
        read_screen=program.read_screen,
        usage=usage.usage,
        websockets={"/attach": attach, "/terminal": TerminalServer(attach, program, new_id())},
    )


def _stopper(
    program: RunningProgram,
    driver: PtyDriver,
    signals: CliSignals,
    endings: Sequence[Callable[[], None]],
    person: PersonTerminal | None,
    usage: UsageWriter,
) -> Callable[[], Awaitable[None]]:
    """Returns what stops the agent, and then calls `endings`; it may be called more than once."""
    has_stopped = False

    async def stop() -> None:
        nonlocal has_stopped
        is_first, has_stopped = not has_stopped, True
        has_exited = program.exited.done() and is_first
        await driver.stop()
        if has_exited:
            signals.note_exit()
        if has_exited and person is None:
            await asyncio.to_thread(report_exit, program, driver)
        if person is not None:
            person.restore(program.leaving_bytes())
            correction = signals.correction("".join(program.screen.history(_LAST_LINES))) if is_first else ""
            if correction:
                _print(correction)
        signals.stop()
        await asyncio.to_thread(usage.close, _USAGE_SECONDS)
        for end in endings:
            end()

    return stop


def acceptance_of(profile: Profile) -> Acceptance:
    """Returns what a program accepts: every media type, because it is told where the files of a message are.

    A program that reads each line in a language of its own, whose profile has no envelope, accepts text only.
    """
    return ANYTHING if profile.envelope else Acceptance(media_types=TEXT)


def tools_for(me: AgentEntry, profile: Profile, settings: Settings, *, mcp: bool) -> ToolServer:
    """Returns the tools of one launch: without `mcp` or an adapter no server, without `allow_commands` no command."""
    has_server = mcp and bool(profile.signals.adapter)
    wait = settings.mcp_wait or profile.mcp.wait
    command = str(command_path(launch_folder(settings.home, me.agent_id)))
    return ToolServer(
        command=(command, "mcp") if has_server else (),
        env={**_identity(me, settings), WAIT_VARIABLE: f"{wait:g}"} if has_server else {},
        wait_seconds=wait,
        allowed_commands=_ALLOWED_COMMANDS if settings.allow_commands else (),
    )


def _environment(
    me: AgentEntry, profile: Profile, settings: Settings, command: AgentCommand, tools: ToolServer
) -> dict[str, str]:
    """Returns the CLI's environment: ours, the profile's, its identity, and a PATH with the `synapse` command.

    Most CLIs pass it on to their MCP servers, so that it has the variables of ours too.
    """
    identity = {**_identity(me, settings), "TERM": os.environ.get("TERM") or "xterm-256color"}
    demands = dict([TERMINAL_DEMANDED]) if settings.terminal_decides else {}
    env = {**os.environ, **profile.env, **identity, **tools.env, **demands}
    try:
        return command.environment(env)
    except OSError as error:
        # The instructions of the agent name the command's path too.
        log.warning("command_not_made", extra={"error": str(error)})
        return env


def _identity(me: AgentEntry, settings: Settings) -> dict[str, str]:
    """Returns the variables by which the processes of an agent find their host."""
    return {AGENT_VARIABLE: me.agent_id, SOCKET_VARIABLE: me.socket, "SYNAPSE_HOME": str(settings.home)}


class CliSignals:
    """The adapter of one launch. Without an adapter in the profile, its methods do nothing."""

    def __init__(  # noqa: PLR0913 - what a launch is made of
        self,
        me: AgentEntry,
        profile: Profile,
        settings: Settings,
        env: Mapping[str, str],
        tools: ToolServer,
        record: RunRecord,
        *,
        resume: bool,
    ) -> None:
        """`resume` says whether the CLI is to go on with the conversation of the run before, by its record."""
        self._record = record
        self._before = record.last()
        self._was_ready = False
        self.notify: Callable[[str], None] = lambda _: None
        """Shows a notice to the people at its terminal."""
        self._secret = secrets.token_urlsafe(24)
        context = LaunchContext(
            folder=launch_folder(settings.home, me.agent_id),
            # Not `localhost`, which may resolve to ::1 first, where the host does not listen.
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
            tools=tools,
            resume=self._before.session if resume and self._before else "",
            converse=record.converse,
        )
        self._adapter: Adapter | None = adapter_for(profile, context)
        self.lacks_tools = ""
        """Why the CLI was not given the MCP server of its launch; known after `prepare`."""
        self.conversation: ConversationStatus | None = None
        """Whether the CLI goes on with the conversation of the run before; known after `prepare`, if ever."""

    @property
    def hook_endpoint(self) -> HookEndpoint | None:
        """The endpoint that the CLI's hooks report to."""
        return HookEndpoint(secret=self._secret, receive=self._adapter.receive) if self._adapter else None

    @property
    def told(self) -> str:
        """The digest of the instructions that the conversation was given in the run before; empty for a new one."""
        return self._before.told if self._before and self.conversation and self.conversation.resumed else ""

    def prepare(self, launch: Launch, arguments: tuple[str, ...]) -> Launch:
        """Returns the launch with the arguments and environment that turn signals on.

        `arguments` are the person's own, at the end of the launch's command.
        """
        if self._adapter is None:
            self._record.begin(None)
            return launch
        prepared = self._adapter.prepare(arguments)
        self.lacks_tools = prepared.lacks_tools
        self.conversation = ConversationStatus(resumed=prepared.resumes, why=prepared.begins_anew)
        if prepared.begins_anew:
            log.warning("conversation_not_resumed", extra={"why": prepared.begins_anew})
        self._record.begin(self._before if prepared.resumes else None)
        command = launch.command[: len(launch.command) - len(arguments)]
        return replace(launch, command=(*command, *prepared.arguments), env={**launch.env, **prepared.env})

    def start(self, listener: SignalListener, pid: int) -> None:
        if self._adapter is not None:
            self._adapter.start(listener, pid)

    def note_status(self, status: AgentStatus) -> None:
        """Notes that the CLI was ready once. Only then a person sees a notice: before, it paints its screen anew."""
        if status.state != READY or self._was_ready:
            return
        self._was_ready = True
        if self.conversation and self.conversation.why:
            self.notify(f"a new conversation: {self.conversation.why}")

    def note_exit(self) -> None:
        """Notes that the CLI has ended by itself: if it was never ready, the next run begins a new conversation."""
        if self.conversation and self.conversation.resumed and not self._was_ready:
            log.warning("conversation_given_up", extra={"why": "the CLI ended before it was ready"})
            self._record.converse("")

    def recheck(self) -> None:
        if self._adapter is not None:
            self._adapter.look()

    async def answer(self, question_id: str, choice: Choice) -> bool:
        """Answers a question through the CLI's own interface. Returns False when it has none."""
        return self._adapter is not None and await self._adapter.answer(question_id, choice)

    def sender(self) -> ApiSender | None:
        """Returns what sends messages to the CLI without typing, if it can now."""
        return self._adapter.sender() if self._adapter else None

    async def reconcile(self, key: str, typed: str) -> SendOutcome:
        """Finds out what became of a message that an earlier host was sending or typing.

        The CLI's API knows it by its key (see `adapters.adapter.ApiSender`), its transcript by the line that was typed.
        """
        is_taken = await asyncio.to_thread(self._has_prompt, typed)
        if is_taken:
            return SendOutcome.TAKEN
        with suppress(TimeoutError):
            async with asyncio.timeout(_SENDER_SECONDS):
                while (sender := self.sender()) is None:
                    await pause(_SENDER_LOOK_SECONDS)
                return await sender.reconcile(key)
        return SendOutcome.UNKNOWN

    def _has_prompt(self, typed: str) -> bool:
        """Returns whether the conversation of the agent's last run has the line that was typed."""
        if self._adapter is None or self._before is None or not (typed and self._before.session):
            return False
        return any(compact(typed) in compact(prompt) for prompt in self._adapter.prompts(self._before.session))

    def correction(self, shown: str) -> str:
        """Returns a correction of the CLI's last output, if that would mislead a person; else an empty string."""
        return self._adapter.correction(shown) if self._adapter else ""

    def stop(self) -> None:
        if self._adapter is not None:
            self._adapter.stop()


def adapter_for(profile: Profile, context: LaunchContext) -> Adapter | None:
    """Returns the adapter that a profile names in `[signals]`; None when only its screen is read.

    Raises:
        InvalidProfile: it names an unknown adapter.
    """
    if not profile.signals.adapter:
        return None
    make = _ADAPTERS.get(profile.signals.adapter)
    if make is None:
        raise InvalidProfile(
            f"profile '{profile.name}': signals.adapter must be one of {', '.join(sorted(_ADAPTERS))}",
            hint="leave the table [signals] out for a CLI of which only the screen is read",
        )
    return make(context)


def report_queued_messages(me: AgentEntry, tasks: Sequence[Task], *, is_person_there: bool) -> None:
    """Logs and prints which messages wait for the next start: the person who ended the program may not know of them."""
    if not tasks:
        return
    log.info("messages_left", extra={"count": len(tasks)})
    if not is_person_there:
        return
    name = short_name(me)
    count = "1 message waits" if len(tasks) == 1 else f"{len(tasks)} messages wait"
    shown = [
        f"  {task.short_id} from {task.sender_name}: {_shortened(task.message.text)}"
        for task in tasks[:_MAX_SHOWN_TASKS]
    ]
    if len(tasks) > _MAX_SHOWN_TASKS:
        shown.append(f"  and {len(tasks) - _MAX_SHOWN_TASKS} more  (synapse queue)")
    _print(f"{count} for {name}, and will be delivered when it is started again  ({start_command(me)})", *shown)


def start_command(me: AgentEntry) -> str:
    """Returns the command that starts the agent again with its queue."""
    return f"synapse {me.agent_type}" + (f" --name {shlex.quote(me.name)}" if me.name else "")


def report_exit(program: RunningProgram, driver: PtyDriver) -> None:
    """Logs how the program ended. If nothing was typed yet, also reports what its terminal showed.

    `synapse start` reads the report from stderr. After something was typed the terminal shows a conversation, which
    must not be logged.
    """
    status = program.exit_status
    if status is None:
        return
    if driver.typed() or program.pump.last_key != float("-inf"):
        log.info("program_ended", extra={"status": status})
        return
    program.screen.wait_loaded(_LOAD_SECONDS)
    shown = [line.rstrip() for line in program.screen.history(_SHOWN_LINES) if line.strip()]
    log.warning("program_ended", extra={"status": status, "shown": shown})
    title = f"{describe_exit(status)}; its terminal showed{':' if shown else ' nothing'}"
    _print(title, *(f"  {line}" for line in shown))


def _print(*lines: str) -> None:
    """Prints lines on stderr. A full disk or a closed terminal must not change how the agent ends."""
    with suppress(OSError):
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()


def _shortened(text: str) -> str:
    line = " ".join(sanitise(text).split())
    return line if len(line) <= _MAX_SHOWN_TEXT else f"{line[: _MAX_SHOWN_TEXT - 1]}…"
