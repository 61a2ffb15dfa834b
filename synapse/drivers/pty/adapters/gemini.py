"""Gemini CLI: the chat file of the session that it was started with.

We choose the name of that session. Where a person goes on with an old one, it is the one that was opened in this folder
while the program started; if there are two, it is not known which is whose, and none is read. A chat is never chosen by
its content, because another one may have the same text. So the answers of a session that a person begins in the
terminal (`/clear`) are read from the screen.

We use no hooks: they would have to be put into the person's own folder, its AfterAgent hook repeats streamed text, and
its title and its chat file together report as much.

Its policy of one launch is a private file for `--policy`: it allows our shell commands, and our MCP server where its
extension is installed (`config/gemini_extension.py`). Its rules have the lowest priority among the person's own, so
that every rule of theirs wins. `--policy` replaces the policies that Gemini would read otherwise, so these are named
again beside ours.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from synapse.config.cli_configs import read_configs, table_in
from synapse.config.gemini_extension import gemini_folder, is_installed
from synapse.config.private_files import make_private, write_private
from synapse.core.question import Choice
from synapse.drivers.pty.adapters.adapter import (
    SERVER_NAME,
    ApiSender,
    LaunchContext,
    Prepared,
    SignalListener,
    knows_flag,
    values_of,
    why_anew,
)
from synapse.drivers.pty.adapters.transcript import (
    Tail,
    Ticker,
    TranscriptFollower,
    first_record,
    name_session,
    prompts_in,
    size_of,
    tail_from_now,
)
from synapse.terminal.evidence import Source
from synapse.terminal.signals.gemini import GeminiChat
from synapse.terminal.signals.report import Record, SignalKind, text_at
from synapse.terminal.signals.usage import GeminiUsage

_RESUME_FLAG: Final = "--resume"
_OLD_CONVERSATION: Final = (_RESUME_FLAG, "-r", "--session-file")
_CHOOSING_CONVERSATION: Final = (*_OLD_CONVERSATION, "--session-id", "-p", "--prompt")
_POLICY_FLAG: Final = "--policy"
_CHOOSING_FLAGS: Final = ("-e", "--extensions", "--allowed-mcp-server-names")
_SYSTEM_SETTINGS: Final = ("GEMINI_CLI_SYSTEM_SETTINGS_PATH", "GEMINI_CLI_SYSTEM_DEFAULTS_PATH")
_SYSTEM_FOLDERS: Final = (Path("/etc/gemini-cli"), Path("/Library/Application Support/GeminiCli"))
_SETTINGS_NAMES: Final = ("settings.json", "system-defaults.json")
_LOOK_SECONDS: Final = 0.05
_OPENING_SECONDS: Final = 10.0
"""How long after its terminal is ready the program may take to open an old session."""
_LOADING_SECONDS: Final = 60.0
"""How long after its prompt is visible it may take to load an old session, on a busy machine."""
_LOADING: Final = "it loads the conversation that it goes on with"
_SEVERAL: Final = "several sessions were opened while it started, and which is its own is not known"


class GeminiSignals:
    """Implements Adapter for Gemini CLI."""

    def __init__(self, launch: LaunchContext) -> None:
        self._launch = launch
        self._session = ""
        self._sizes: Mapping[Path, int] = {}
        """The sizes of the chats before the program was started, where its session has no name of ours."""
        self._opened_by: float | None = None
        """When the program has certainly opened its session."""
        self._is_unknown = False
        """Which session the program has opened is not known, and never will be."""
        self._chat = GeminiChat()
        self._usage = GeminiUsage()
        self._listener: SignalListener | None = None
        self._follower: TranscriptFollower[Mapping[str, Path | None]] | None = None
        self._ticker = Ticker(_LOOK_SECONDS, self._tick)
        self._path: Path | None = None
        self._resumed_from: Tail | None = None
        """What is added to the chat of the session that it goes on with, until it has loaded that."""
        self._loaded_by: float | None = None
        """When it has certainly loaded it."""
        self._loading = Ticker(_LOOK_SECONDS, self._look_whether_loaded)
        self._has_policy = False
        """Whether the launch's folder holds a policy of ours."""

    def prepare(self, arguments: tuple[str, ...]) -> Prepared:
        anew = why_anew(
            self._launch, arguments, knows=_RESUME_FLAG, choosing=_CHOOSING_CONVERSATION, folder_of=self._folder_of
        )
        resumes = bool(self._launch.resume) and not anew
        if resumes:
            self._session = self._launch.resume
            chat = self._chat_of(self._session)
            self._resumed_from = None if chat is None else tail_from_now(chat)
            named = (_RESUME_FLAG, self._session, *arguments)
        else:
            named, self._session = name_session(arguments, self._launch, _OLD_CONVERSATION)
        if not self._session:
            self._sizes = {chat: size_of(chat) for chat in self._chats("*")}
        return replace(self._with_policy(arguments, named), resumes=resumes, begins_anew=anew)

    def start(self, listener: SignalListener, _pid: int, /) -> None:
        self._listener = listener
        listener.expect(Source.TRANSCRIPT, "its chat file has said nothing yet")
        self._follower = TranscriptFollower(self._scan, self._choose, self._take, listener.quiet_for)
        self._follower.start()
        if self._resumed_from is not None:
            listener.hold(_LOADING)
            self._loading.start()

    def look(self) -> None:
        if self._follower is None or self._listener is None:
            return
        self._follower.look()
        if self._listener.seems_ready():
            self._conclude()

    def receive(self, payload: Record) -> None:
        """Does nothing: we give Gemini no hooks."""

    async def answer(self, _question_id: str, _choice: Choice, /) -> bool:
        return False

    def sender(self) -> ApiSender | None:
        return None

    def prompts(self, session: str, /) -> Iterator[str]:
        chat = self._chat_of(session)
        return iter(()) if chat is None else prompts_in(chat, GeminiChat().read)

    def correction(self, _shown: str, /) -> str:
        return ""

    def stop(self) -> None:
        self._ticker.stop()
        self._loading.stop()
        if self._follower is not None:
            self._follower.stop()
        if self._has_policy:
            shutil.rmtree(self._launch.folder, ignore_errors=True)

    @property
    def _own_folder(self) -> Path:
        return gemini_folder(self._launch.env)

    def _with_policy(self, arguments: tuple[str, ...], named: tuple[str, ...]) -> Prepared:
        """Returns the launch with a policy that allows our commands and tools, unless it would replace another one."""
        tools = self._launch.tools
        if not tools.command and not tools.allowed_commands:
            return Prepared(arguments=named)
        theirs = values_of(_POLICY_FLAG, arguments)
        lacks = self._why_no_policy(theirs)
        if lacks:
            return Prepared(arguments=named, lacks_tools=lacks if tools.command else "")
        lacks = self._why_no_server(arguments) if tools.command else ""
        rules = _policy(tools.allowed_commands, serves=bool(tools.command) and not lacks)
        if not rules:
            return Prepared(arguments=named, lacks_tools=lacks)
        make_private(self._launch.folder)
        self._has_policy = True
        file = self._launch.folder / "policy.toml"
        write_private(file, rules)
        # Of two rules with the same priority the first decides, so ours come behind the person's.
        end = named.index("--") if "--" in named else len(named)
        read_anyway = () if theirs else (_POLICY_FLAG, str(self._own_folder / "policies"))
        return Prepared(
            arguments=(*named[:end], *read_anyway, _POLICY_FLAG, str(file), *named[end:]), lacks_tools=lacks
        )

    def _why_no_policy(self, theirs: list[str]) -> str:
        if not knows_flag(_POLICY_FLAG, self._launch):
            return f"this version does not know {_POLICY_FLAG}"
        if not theirs and any("policyPaths" in settings for settings in self._settings()):
            # Which of them count depends on whether the folder is trusted.
            return f"its settings have `policyPaths`, which {_POLICY_FLAG} would replace"
        if "," in f"{self._launch.folder}{self._own_folder}":
            return f"{_POLICY_FLAG} takes no path with a comma"
        return ""

    def _why_no_server(self, arguments: tuple[str, ...]) -> str:
        if any(SERVER_NAME in table_in(settings, "mcpServers") for settings in self._settings()):
            return f"its own settings have an MCP server named `{SERVER_NAME}`, which is left as it is"
        if not is_installed(self._launch.env):
            return "Gemini takes no server at launch: `synapse mcp install gemini` adds it, once"
        for flag in _CHOOSING_FLAGS:
            chosen = values_of(flag, arguments)
            if chosen and SERVER_NAME not in chosen:
                return f"{flag} does not name it"
        return ""

    def _settings(self) -> list[Record]:
        env = self._launch.env
        folders = (self._own_folder, self._launch.working_dir / ".gemini", *_SYSTEM_FOLDERS)
        files = [folder / name for folder in folders for name in _SETTINGS_NAMES]
        return read_configs(files + [Path(env[name]) for name in _SYSTEM_SETTINGS if env.get(name)])

    def _scan(self) -> Mapping[str, Path | None]:
        """Returns the program's session, or each that may be its own, with its chat; nothing if no scan is needed."""
        if self._path is not None or self._is_unknown:
            return {}
        if self._session:
            return {self._session: self._chat_of(self._session)}
        opened = {session for chat in self._chats("*") if (session := self._opened_in(chat))}
        return {session: self._chat_of(session) for session in opened}

    def _choose(self, found: Mapping[str, Path | None]) -> Path | None:
        if not self._session and self._listener is not None:
            self._session = self._opened_session(found, self._listener)
        if self._path is None:
            self._path = found.get(self._session)
        return self._path

    def _opened_session(self, found: Mapping[str, Path | None], listener: SignalListener) -> str:
        """Returns the session that was begun or resumed in this folder while the program started, if only one was."""
        now = asyncio.get_running_loop().time()
        if self._opened_by is None:
            if not listener.seems_ready():
                return ""
            self._opened_by = now + _OPENING_SECONDS
        if now >= self._opened_by:
            # A session that is opened later may belong to another program.
            self._is_unknown = True
            return ""
        if len(found) > 1:
            self._is_unknown = True
            listener.mark_missing(Source.TRANSCRIPT, _SEVERAL)
            return ""
        return next(iter(found), "")

    def _chat_of(self, session: str) -> Path | None:
        # Each resume leaves another chat of that id behind, which has no turns: they go on in the first one.
        chats = sorted(self._chats(f"*{session[:8]}*"), key=lambda chat: chat.name)
        return next((chat for chat in chats if text_at(first_record(chat), "sessionId") == session), None)

    def _folder_of(self, session: str) -> str | None:
        """Returns the working folder if the session is one of it, and an empty text if it is one of another folder."""
        chat = self._chat_of(session)
        if chat is None:
            return None
        is_ours = text_at(first_record(chat), "projectHash") == self._project_hash
        return str(self._launch.working_dir) if is_ours else ""

    @property
    def _project_hash(self) -> str:
        return hashlib.sha256(bytes(self._launch.working_dir.resolve())).hexdigest()

    def _opened_in(self, chat: Path) -> str:
        """Returns the session that was begun or resumed in a chat of this folder since `prepare`; empty if none was."""
        before = self._sizes.get(chat, 0)
        if size_of(chat) <= before or text_at(first_record(chat), "projectHash") != self._project_hash:
            return ""
        # The first record of a new chat names its session; a resumed session adds its name to its chat again.
        records = Tail(chat, before).read()
        named = (text_at(record, "sessionId") or text_at(record, "$set", "sessionId") for record in records)
        return next(filter(None, named), "")

    def _chats(self, name: str) -> Iterator[Path]:
        return (self._own_folder / "tmp").glob(f"*/chats/session-{name}.jsonl")

    def _take(self, record: Record) -> None:
        if self._listener is None:
            return
        # The first record names the session, and has no time.
        used = self._usage.read(record)
        if text_at(record, "timestamp") < self._launch.started:
            return
        if used is not None:
            self._listener.note_usage(used)
        report = self._chat.read(record)
        if report is None:
            return
        self._listener.report(report)
        if report.kind is SignalKind.SUBMITTED:
            self._launch.converse(self._session)
            self._ticker.start()
        else:
            self._ticker.stop()

    def _look_whether_loaded(self) -> float | None:
        """Lets messages in once it has loaded the old session: its prompt is there before, and loses what is typed."""
        if self._resumed_from is None or self._listener is None:
            return None
        now = asyncio.get_running_loop().time()
        if self._loaded_by is None and self._listener.seems_ready():
            self._loaded_by = now + _LOADING_SECONDS
        is_late = self._loaded_by is not None and now >= self._loaded_by
        if not is_late and not any(text_at(one, "$set", "sessionId") for one in self._resumed_from.read()):
            return _LOOK_SECONDS
        self._resumed_from = None
        self._listener.hold("")
        return None

    def _tick(self) -> float | None:
        """Reports the end of a turn once the terminal shows it."""
        if self._listener is None or self._follower is None:
            return None
        if not self._listener.seems_ready():
            return _LOOK_SECONDS
        self._follower.look()
        return None if self._conclude() else _LOOK_SECONDS

    def _conclude(self) -> bool:
        report = self._chat.conclude()
        if report is None or self._listener is None:
            return False
        self._listener.report(report)
        return True


def _policy(commands: tuple[str, ...], *, serves: bool) -> str:
    """Returns the rules that allow our shell commands and, where our MCP server `serves`, its tools."""
    rules: list[str] = []
    if commands:
        # Not in the mode for plans, which runs no commands.
        modes = '["default", "autoEdit", "yolo"]'
        prefixes = json.dumps(commands)
        rules.append(f'toolName = "run_shell_command"\ncommandPrefix = {prefixes}\nmodes = {modes}\n')
    if serves:
        rules.append(f'mcpName = "{SERVER_NAME}"\ntoolName = "*"\n')
    return "\n".join(f'[[rule]]\n{rule}decision = "allow"\npriority = 0\n' for rule in rules)
