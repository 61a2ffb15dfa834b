"""`synapse dashboard`: opens the gateway's page in a browser; lists and revokes the sessions of browsers.

The link that opens the page works once, for two minutes, and only a person gets one. It is opened with the system's
browser where there is a display, and printed elsewhere.
"""

from __future__ import annotations

import os
import sys
import webbrowser
from argparse import Namespace
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from synapse.auth.sessions import SESSION_ACTIONS, Session, SessionFile
from synapse.cli.exit_codes import DONE
from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.parser import VerbParser
from synapse.cli.person import launch_settings, require_deciding_person
from synapse.cli.tables import table
from synapse.cli.trust import settings_here
from synapse.client.hosts import GATEWAY, ask, open_gateways
from synapse.client.times import ago
from synapse.config.process import SystemClock
from synapse.config.settings import load_settings
from synapse.core.agent import AgentEntry
from synapse.core.caller import READ
from synapse.core.errors import Ambiguous, PortTaken, RouteNotFound
from synapse.dialects.paths import LINKS_PATH
from synapse.host.background import HostLaunch, start_host
from synapse.registry.files import gateways

EXAMPLES: Final = """
synapse dashboard                                open it; starts a gateway if none runs
synapse dashboard --no-open                      print the link
synapse dashboard --read-only --no-open          for a browser that may only look
synapse dashboard sessions                       list the browsers that are signed in
synapse dashboard revoke 3f2a91c0d4e5            sign one out; `--all` signs all out
"""
OPEN: Final = "open"
REVOKE: Final = "revoke"
_ALL: Final = "all"


def run_dashboard(arguments: list[str]) -> int:
    """Opens the dashboard, or runs an action on its sessions; returns the exit code."""
    parser = VerbParser("dashboard", examples=EXAMPLES)
    parser.add_argument(
        "action",
        nargs="?",
        choices=list(_ACTIONS),
        default=OPEN,
        metavar="ACTION",
        help="open (the default), `sessions` to list browsers, `revoke` to sign them out",
    )
    parser.add_argument("session", nargs="?", metavar="ID", help="revoke this session")
    parser.add_argument("--all", action="store_true", help="revoke all sessions")
    parser.add_argument("--no-open", action="store_true", help="print the link instead of opening it")
    parser.add_argument("--port", type=int, help="the port of the gateway, if several run or none does (8000)")
    parser.add_argument("--read-only", action="store_true", help="the browser may look, and do nothing else")
    options = parser.parse_args(arguments)
    names_sessions = bool(options.session) + options.all
    if options.action == REVOKE and names_sessions != 1:
        parser.error("name the session to revoke, or use --all")
    if options.action != REVOKE and names_sessions:
        parser.error(f"{options.session or '--all'} goes with `revoke`")
    return _ACTIONS[options.action](options)


def _open(options: Namespace) -> int:
    # An agent must not get the rights of a person by way of a browser.
    require_deciding_person("open the dashboard")
    gateway = _running(options.port) or _start(options)
    body = {"actions": [READ] if options.read_only else list(SESSION_ACTIONS)}
    try:
        link = ask(gateway, "POST", LINKS_PATH, body)
    except RouteNotFound as error:
        raise RouteNotFound(
            "the running gateway is of an earlier version, without a dashboard",
            hint="`synapse stop gateway` stops it; then try again",
        ) from error
    url: str = link["url"]
    page = url.partition("#")[0]
    if options.json:
        print_json({**link, "gateway": gateway.agent_id})
    elif not options.no_open and _has_display() and webbrowser.open(url):
        print_notice(f"Opened {page} in your browser.  (synapse dashboard --no-open prints a link)")
    else:
        print_result(url)
        print_notice("Open this link in a browser. It works once, for two minutes.")
        if "SSH_CONNECTION" in os.environ:
            place = page.removeprefix("http://").rstrip("/")
            print_notice(f"From the machine in front of you, first:  ssh -L {gateway.port}:{place} …")
    return DONE


def _running(port: int | None) -> AgentEntry | None:
    """Returns the gateway that runs, at `port` if there is one given. Raises Ambiguous."""
    running = [entry for entry in open_gateways().entries() if port in (None, entry.port)]
    if len(running) > 1:
        ports = ", ".join(str(entry.port) for entry in running)
        raise Ambiguous(f"several gateways run, at the ports {ports}", hint="choose one with --port")
    return running[0] if running else None


def _start(options: Namespace) -> AgentEntry:
    settings = settings_here(load=launch_settings, asks=not options.json)
    known, logs = gateways(settings.home), settings.logs
    where = ["--port", str(options.port)] if options.port is not None else []
    try:
        gateway = start_host(HostLaunch(verb=[GATEWAY, *where]), known, logs)
    except PortTaken:
        # A page needs no port that others know: free ones will do.
        where = ["--port", str(options.port or 0), "--grpc-port", "0"]
        gateway = start_host(HostLaunch(verb=[GATEWAY, *where]), known, logs)
    if not options.json:
        print_notice(f"Gateway listening on {gateway.endpoint} (pid {gateway.pid})  (synapse stop gateway)")
    return gateway


def _has_display() -> bool:
    """Whether a browser can show a window here; a browser in this terminal would run no page of ours."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _list(options: Namespace) -> int:
    sessions = _sessions()
    known = [(session, sessions.last_used(session.session_id), sessions.ends_at(session)) for session in sessions.all()]
    if options.json:
        print_json([_fields(*one) for one in known])
    elif known:
        now = SystemClock().now()
        rows = [
            (
                session.session_id,
                _ALL if session.actions == frozenset(SESSION_ACTIONS) else ",".join(sorted(session.actions)),
                ago(session.created_at, now),
                ago(used, now) or "never",
                ago(end, now),
            )
            for session, used, end in known
        ]
        print_result(table(("SESSION", "ACTIONS", "CREATED", "LAST USED", "ENDS"), rows, elastic=1))
    else:
        print_notice("No browser is signed in.  (synapse dashboard)")
    return DONE


def _revoke(options: Namespace) -> int:
    require_deciding_person("sign browsers out")
    sessions = _sessions()
    revoked = sessions.revoke_all() if options.all else (sessions.revoke(options.session),)
    if options.json:
        print_json([session.session_id for session in revoked])
    else:
        count = len(revoked)
        print_notice(f"{count} session{'' if count == 1 else 's'} revoked.")
    return DONE


_ACTIONS: Final[Mapping[str, Callable[[Namespace], int]]] = {OPEN: _open, "sessions": _list, REVOKE: _revoke}


def _sessions() -> SessionFile:
    return SessionFile(load_settings().home, SystemClock())


def _fields(session: Session, used: datetime | None, end: datetime) -> dict[str, Any]:
    return {
        "id": session.session_id,
        "actions": [action for action in SESSION_ACTIONS if action in session.actions],
        "created": _time(session.created_at),
        "last_used": _time(used) or None,
        "expires": _time(end),
    }


def _time(moment: datetime | None) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z") if moment else ""
