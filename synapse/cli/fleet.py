"""`synapse fleet`: creates a fleet of machines, lets machines in and out, and shows how it is.

Only a person changes a fleet. nats-py is loaded by the actions that connect, and `status` and `outbox` ask the link.
"""

from __future__ import annotations

import logging
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from synapse.cli.exit_codes import DONE, FAILED
from synapse.cli.fleet_outbox import run_outbox
from synapse.cli.link import require_nats
from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.parser import ActionParser, VerbParser
from synapse.cli.person import require_deciding_person
from synapse.cli.tables import table
from synapse.client.lines import plain
from synapse.client.link import NEARLY_FULL, ask_link, knows_machines, waiting_text
from synapse.client.times import ago, lasting
from synapse.config.fleet import (
    EXTRA_ACTIONS,
    SEED_FILE,
    SERVER_FOLDER,
    FleetConfig,
    checked_extra_actions,
    fleet_folder,
    load_fleet,
    save_fleet,
    without_password,
)
from synapse.config.process import SystemClock
from synapse.config.settings import Settings, load_settings
from synapse.core.caller import READ
from synapse.core.errors import (
    Conflict,
    InvalidRequest,
    InvalidSettings,
    LinkDown,
    NotInFleet,
    SynapseError,
)
from synapse.core.json_text import object_in, objects_in
from synapse.fleet.bus import KEY_REFUSED
from synapse.fleet.names import is_machine_name
from synapse.registry.files import gateways

if TYPE_CHECKING:
    from synapse.link.server import FleetServer

SUMMARIES: Final = {
    "create": "make a fleet, with this machine as its first and its server",
    "invite": "print an invitation for another machine, valid once and for ten minutes",
    "join": "join a fleet by an invitation, or over a NATS server that others run",
    "status": "show the machines of the fleet, and this machine's connection",
    "outbox": "list messages that other machines have not accepted, and why; take one back",
    "allow": "let another machine do more here",
    "leave": "end this machine's membership",
    "remove": "remove another machine; it is cut off at once",
    "start": "start this machine's link, and the fleet's server if it is run here",
    "stop": "stop this machine's link, and the fleet's server if it is run here",
    "doctor": "check the fleet from here: connection, rights, server, clock, versions",
}
EXAMPLES: Final = {
    "": """
synapse fleet create                          on a machine that stays on
synapse fleet invite box2                     there, for the machine that joins
synapse fleet join synapse-fleet-1:eyJm…      on box2
synapse send codex@box2 "hello" --response    from any of them
synapse fleet allow laptop approve,attach     on box2: people at laptop may do that here
synapse fleet status
""",
    "create": """
synapse fleet create                             listens on all addresses, with TLS
synapse fleet create --name hub --listen 192.168.1.5:4222
synapse fleet create --address fleet.example.org:4222    others reach it by that name
""",
    "invite": """
synapse fleet invite box2
synapse fleet invite office --gateway            it may serve a gateway for the whole fleet
synapse fleet invite box2 --json                 {"invitation": "…", …}
""",
    "join": """
synapse fleet join synapse-fleet-1:eyJm…
synapse fleet join - < invitation.txt
synapse fleet join tls://nats.example.org:4222 --creds box2.creds --as box2
""",
    "status": "synapse fleet status\nsynapse fleet status --json",
    "outbox": "synapse fleet outbox\nsynapse fleet outbox --cancel 1a2b3c4d",
    "allow": "synapse fleet allow laptop approve,attach\nsynapse fleet allow laptop none",
    "leave": "synapse fleet leave",
    "remove": "synapse fleet remove box3",
    "start": "synapse fleet start",
    "stop": "synapse fleet stop",
    "doctor": "synapse fleet doctor\nsynapse fleet doctor --json",
}
NOTHING: Final = "none"
RUNS_ELSEWHERE: Final = "runs under the name"
"""In the error of a link that has ended because another machine has its key (`link.presence`)."""


def run_fleet(arguments: list[str]) -> int:
    """Runs an action on the fleet and returns the exit code."""
    options = _parser().parse_args(arguments)
    # What the parts of a link log here, an error or a finding says.
    logging.getLogger("synapse").addHandler(logging.NullHandler())
    return _ACTIONS[options.action](load_settings(), options)


def _parser() -> VerbParser:
    parser = VerbParser("fleet", examples=EXAMPLES[""], json=False)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=ActionParser)
    made = {
        name: actions.add_parser(name, help=text, examples=EXAMPLES[name], summary=text)
        for name, text in SUMMARIES.items()
    }
    create, join = made["create"], made["join"]
    create.add_argument("--name", default="", help="the name of this machine (default: its host name)")
    create.add_argument("--fleet", default="fleet", metavar="NAME", help="the name of the fleet (default: fleet)")
    create.add_argument(
        "--listen",
        default="",
        metavar="HOST:PORT",
        help="where the server listens (default: all addresses, and port 4222 or, if that is taken, a free one)",
    )
    create.add_argument("--address", default="", metavar="HOST:PORT", help="where other machines reach it")
    made["invite"].add_argument("name", metavar="NAME", help="the name of the machine that joins")
    made["invite"].add_argument("--gateway", action="store_true", help="it may serve a gateway for the whole fleet")
    join.add_argument(
        "invitation", metavar="INVITATION", help="or `-` for standard input, or the address of a NATS server"
    )
    join.add_argument("--creds", default="", metavar="FILE", help="credentials for that NATS server")
    join.add_argument("--ca", default="", metavar="FILE", help="the certificate authority of that NATS server")
    join.add_argument(
        "--insecure", action="store_true", help="also without TLS, in a network of your own such as a VPN"
    )
    join.add_argument(
        "--as",
        dest="machine",
        default="",
        metavar="NAME",
        help="the name of this machine there (default: its host name; an invitation has its own)",
    )
    join.add_argument("--gateway", action="store_true", help="it serves a gateway; that NATS server must allow it")
    made["outbox"].add_argument(
        "--all",
        action="store_true",
        help="also messages that were accepted, and those that came to nothing more than a day ago",
    )
    made["outbox"].add_argument(
        "--cancel", default="", metavar="TASK", help="take back a message that was not accepted"
    )
    made["allow"].add_argument("name", metavar="MACHINE")
    made["allow"].add_argument(
        "actions", metavar="ACTIONS", help=f"some of {','.join(EXTRA_ACTIONS)}; or `{NOTHING}` to take them back"
    )
    made["leave"].add_argument(
        "--end-fleet", action="store_true", help="on the machine with the server: also if others need it"
    )
    made["remove"].add_argument("name", metavar="MACHINE")
    return parser


def _create(settings: Settings, options: Namespace) -> int:
    require_deciding_person("create a fleet")
    require_nats("pip install 'synapse-a2a[fleet-server]'")
    from synapse.link.membership import NewFleet, create_fleet, default_machine_name
    from synapse.link.server import DEFAULT_PORT, has_another_port

    name = options.name or default_machine_name()
    if not name:
        raise InvalidRequest("the host name of this machine has no usable letter", hint="give a name: --name NAME")
    wanted = NewFleet(machine=name, fleet=options.fleet, listen=options.listen, address=options.address)
    config = create_fleet(settings.home, settings.logs, wanted)
    members = _server(settings).members()
    pid = _start_link(settings)
    warning = ""
    if has_another_port(options.listen, members.listen):
        taken = f"Port {DEFAULT_PORT} is taken, so the server listens on {members.listen}"
        warning = f"{taken}; --listen chooses another."
    if options.json:
        told = {**_membership(config), "addresses": list(members.servers), "link": pid}
        print_json({**told, **({"warning": warning} if warning else {})})
        return DONE
    addresses = ", ".join(members.servers)
    reached = (
        f", and other machines reach it at {addresses}."
        if members.uses_tls
        else f": only machines on this computer reach it, at {addresses} without TLS."
    )
    print_notice(
        f"Fleet '{config.fleet}' created; this machine is '{config.machine}'.\n"
        f"Its server listens on {members.listen}{reached}\n"
        "Next:  synapse fleet invite NAME       for each other machine\n"
        "       synapse service install link    starts all this with the machine"
    )
    if warning:
        print_notice(warning)
    if config.replica:
        _name_gateways(settings)
    return DONE


def _invite(settings: Settings, options: Namespace) -> int:
    require_deciding_person("invite machines into a fleet")
    require_nats()
    from synapse.link.membership import invite

    idle = _parts_that_do_not_run(settings)
    invitation = invite(settings.home, settings.logs, options.name, is_gateway=options.gateway)
    _start_link(settings)
    text = invitation.text()
    if options.json:
        expires = datetime.fromtimestamp(invitation.expires_at, UTC).isoformat(timespec="seconds")
        print_json(
            {
                "invitation": text,
                "machine": invitation.machine,
                "gateway": invitation.is_gateway,
                "addresses": list(invitation.servers),
                "expires_at": expires.replace("+00:00", "Z"),
            }
        )
        return DONE
    if idle:
        started = "was started" if len(idle) == 1 else "were started"
        print_notice(f"{' and '.join(idle).capitalize()} did not run, and {started}.")
    print_notice(f"On {invitation.machine}, within ten minutes (it is valid once):\n")
    print_result(f"synapse fleet join {text}")
    return DONE


def _parts_that_do_not_run(settings: Settings) -> list[str]:
    from synapse.link.background import running_link

    runs = {
        "the fleet's server": _server(settings).process() is not None,
        "this machine's link": running_link(settings.home) is not None,
    }
    return [part for part, is_running in runs.items() if not is_running]


def _join(settings: Settings, options: Namespace) -> int:
    require_deciding_person("join a fleet")
    require_nats()
    from synapse.link.membership import default_machine_name, join_by_invitation, join_nats

    text = sys.stdin.read().strip() if options.invitation == "-" else options.invitation
    text = text.removeprefix("synapse fleet join ").strip()
    warning = ""
    if "://" in text:
        name = options.machine or default_machine_name()
        config = join_nats(
            settings.home,
            text,
            name,
            creds=options.creds,
            ca=options.ca,
            insecure=options.insecure,
            is_gateway=options.gateway,
        )
    else:
        given_options = {"--creds": options.creds, "--ca": options.ca, "--as": options.machine}
        for option, given in {**given_options, "--insecure": options.insecure}.items():
            if given:
                raise InvalidRequest(f"{option} is for a NATS server that others run; an invitation has it all")
        if options.gateway:
            raise InvalidRequest(
                "whether a machine is a gateway is in its invitation",
                hint="`synapse fleet invite NAME --gateway` makes one for a gateway",
            )
        config, warning = join_by_invitation(settings.home, text)
    pid = _start_link(settings)
    if options.json:
        print_json({**_membership(config), "link": pid, **({"warning": warning} if warning else {})})
        return DONE
    steps = [
        *(["synapse start gateway           serves the agents of all machines"] if config.is_gateway else []),
        "synapse list --all              shows the agents of all machines",
        "synapse service install link    starts the link with the machine",
    ]
    role = ", with the role of a gateway" if config.is_gateway else ""
    print_notice(f"This machine is '{config.machine}' in the fleet '{config.fleet}'{role}.")
    print_notice("Next:  " + "\n       ".join(steps))
    if config.replica:
        _name_gateways(settings)
    if warning:
        print_notice(f"Warning: {warning}")
    return DONE


def _status(settings: Settings, options: Namespace) -> int:
    config = _require_member(settings)
    from synapse.link.background import read_status

    told = read_status(settings.home, settings.logs)
    if options.json:
        print_json(told)
        return DONE
    now = SystemClock().now()
    if told.get("connected"):
        print_result(f"{config.machine} in the fleet '{config.fleet}': connected to {_text(told, 'server')}")
    else:
        print_result(f"{config.machine} in the fleet '{config.fleet}': not connected: {_text(told, 'problem')}")
    own = {
        "name": config.machine,
        "ships_log": told.get("ship_log"),
        **{name: told.get(name) for name in ("version", "agents", "is_gateway")},
    }
    rows = [_machine_row(machine, config, now) for machine in (own, *objects_in(told, "machines"))]
    print_result(table(("MACHINE", "PRESENT", "VERSION", "AGENTS", "GATEWAY", "MAY HERE"), rows, elastic=5))
    for machine in sorted(config.allow.keys() - {row[0] for row in rows}) if knows_machines(told) else ():
        print_result(f"{machine} is not in the fleet, but would get {','.join(sorted(config.allowed(machine)))}")
    for one in (own, *objects_in(told, "machines")):
        if one.get("ships_log") is False:
            print_result(f"{_text(one, 'name')} keeps its log: gateways get nothing new of it.")
    for line in _outbox_lines(object_in(told, "outbox"), now):
        print_result(line)
    notes: list[Any] = told.get("notes") or []
    for note in notes:
        at, _, text = plain(str(note)).partition(" ")
        print_notice(f"{ago(at, now)}: {text}")
    return DONE


def _outbox_lines(outbox: Mapping[str, Any], now: datetime) -> Iterator[str]:
    if count := outbox.get("open"):
        sent = f"{'' if count == 1 else 'the oldest '}sent {ago(outbox.get('oldest'), now)}"
        yield f"{waiting_text(outbox)} in the outbox, {sent}."
    if (percent := outbox.get("percent") or 0) >= NEARLY_FULL:
        yield f"The outbox is {percent} % full: {_text(outbox, 'nearest')}."


def _machine_row(machine: dict[str, Any], config: FleetConfig, now: datetime) -> tuple[str, ...]:
    name = _text(machine, "name")
    since = lasting(machine.get("since"), now)
    is_own = name == config.machine
    is_here = is_own or machine.get("present")
    present = "this machine" if is_own else "yes" if is_here else f"away {since}".strip()
    return (
        name,
        present,
        _text(machine, "version"),
        _text(machine, "agents") or "0",
        # A machine that is away does not tell.
        "yes" if machine.get("is_gateway") else "no" if is_here else "-",
        "-" if is_own else ",".join(sorted(config.allowed(name))) or "send",
    )


def _outbox(settings: Settings, options: Namespace) -> int:
    _require_member(settings)
    return run_outbox(str(settings.home), options)


def _allow(settings: Settings, options: Namespace) -> int:
    require_deciding_person("allow other machines to do something here")
    config = _require_member(settings)
    if options.name == config.machine:
        raise InvalidRequest("this machine needs no permission of its own")
    if not is_machine_name(options.name):
        raise InvalidRequest(f"'{options.name}' is no name of a machine", hint="`synapse fleet status` lists them")
    words = [word for piece in options.actions.split(",") if (word := piece.strip())]
    actions = frozenset[str]() if words == [NOTHING] else checked_extra_actions(words)
    rest = {machine: allowed for machine, allowed in config.allow.items() if machine != options.name}
    save_fleet(settings.home, replace(config, allow={**rest, options.name: actions} if actions else rest))
    changes_nothing = not actions and options.name not in config.allow
    after = "; this counts when it joins" if actions else ""
    warning = _unknown_machine(settings, options.name, after) if actions or changes_nothing else ""
    if options.json:
        given = {"machine": options.name, "actions": sorted(actions)}
        print_json({**given, **({"warning": warning} if warning else {})})
        return DONE
    if actions:
        print_notice(f"{options.name} may {', '.join(sorted(actions))} here. {_who_may(actions)}")
    elif changes_nothing:
        print_notice(f"{options.name} had no extra rights here.")
    else:
        print_notice(f"{options.name} may send, and read and cancel what it has sent.")
    if warning:
        print_notice(f"Warning: {warning}")
    return DONE


def _who_may(actions: frozenset[str]) -> str:
    for_people = " or ".join(sorted(actions - {READ}))
    limits = f"Only people there may {for_people}. " if for_people else ""
    return f"{limits}Its agents may read, too." if READ in actions else limits.rstrip()


def _unknown_machine(settings: Settings, name: str, after: str) -> str:
    """Returns a warning if the fleet surely has no such machine; empty without a link or a connection."""
    with suppress(SynapseError):
        told = ask_link(str(settings.home), "GET", "/fleet/status")
        known = [_text(machine, "name") for machine in objects_in(told, "machines")]
        if knows_machines(told) and name not in known:
            return f"the fleet has no machine '{name}' now{after}  (synapse fleet status)"
    return ""


def _leave(settings: Settings, options: Namespace) -> int:
    require_deciding_person("leave a fleet")
    config = _membership_to_leave(settings)
    require_nats()
    from synapse.link.background import stop_link
    from synapse.link.membership import leave

    runs_server = config.runs_server if config else (fleet_folder(settings.home) / SERVER_FOLDER).exists()
    users = _users_of_server(settings) if runs_server else _Users()
    if users.need_it and not options.end_fleet:
        raise Conflict(
            f"this machine runs the fleet's server{users.why}", hint="`synapse fleet leave --end-fleet` ends the fleet"
        )
    about_key = "" if runs_server else _what_becomes_of_the_key(settings, config)
    stop_link(settings.home)
    left = leave(settings.home, settings.logs)
    if options.json:
        counts = {"unsent": left.unsent, "unanswered": left.unanswered}
        names = {"left": config.fleet if config else None, "machine": config.machine if config else None}
        print_json({**names, "kept_in": str(left.kept_in), **counts})
        return DONE
    fleet = f"the fleet '{config.fleet}'" if config else "its fleet"
    print_notice(f"This machine has left {fleet}. Its files are kept in {left.kept_in}.")
    if left.unsent:
        print_notice(f"Messages that no other machine had accepted, and that are not sent any more: {left.unsent}.")
    if left.unanswered:
        print_notice(f"Messages that were accepted, and whose answers do not come any more: {left.unanswered}.")
    if runs_server:
        print_notice(users.after_the_end)
    elif about_key:
        print_notice(about_key)
    if config is None or config.replica:
        _name_gateways(settings)
    return DONE


def _membership_to_leave(settings: Settings) -> FleetConfig | None:
    """Returns the membership; None if its file is damaged, which prevents nobody from leaving. Raises NotInFleet."""
    try:
        return _require_member(settings)
    except InvalidSettings:
        return None


class _Users(NamedTuple):
    """Who needs the fleet's server, except for its own machine."""

    machines: Sequence[str] = ()
    invited: Sequence[str] = ()
    """The machines whose invitations are open."""
    is_known: bool = True

    @property
    def need_it(self) -> bool:
        return bool(self.machines or self.invited) or not self.is_known

    @property
    def why(self) -> str:
        """The end of a sentence; empty if nobody needs it, or that is not known."""
        if self.machines:
            verb = "reaches" if len(self.machines) == 1 else "reach"
            return f": without it {', '.join(self.machines)} {verb} no other machine"
        return f", and {self._invitations('open')}" if self.invited else ""

    @property
    def after_the_end(self) -> str:
        void = f", and {self._invitations('void')}" if self.invited else ""
        ended = f"The fleet has ended: its server is stopped{void}."
        if not self.machines:
            return ended
        return f"{ended}\n`synapse fleet leave` ends the membership of {', '.join(self.machines)}, there."

    def _invitations(self, state: str) -> str:
        noun, verb = ("invitation", "is") if len(self.invited) == 1 else ("invitations", "are")
        return f"the {noun} of {', '.join(self.invited)} {verb} {state}"


def _users_of_server(settings: Settings) -> _Users:
    try:
        members = _server(settings).members()
    except InvalidSettings:
        return _Users(is_known=False)
    now = SystemClock().now().timestamp()
    return _Users(
        machines=sorted(one.name for one in members.machines.values() if not one.runs_server),
        invited=sorted(one.name for one in members.invited.values() if not one.used_by and now < one.expires_at),
    )


def _what_becomes_of_the_key(settings: Settings, config: FleetConfig | None) -> str:
    """Returns what a person has to do about the key of a machine that leaves; empty for nothing."""
    if not (fleet_folder(settings.home) / SEED_FILE).exists():
        return ""  # its credentials are of a server that others run
    name = config.machine if config else "NAME"
    from synapse.link.background import read_status

    try:
        problem = _text(read_status(settings.home, settings.logs), "problem")
    except SynapseError as error:
        problem = str(error)
    if KEY_REFUSED in problem:
        return ""
    if RUNS_ELSEWHERE in problem:
        return f"Do not remove {name}: another machine runs under that name."
    return f"On the machine with the server, `synapse fleet remove {name}` takes its key away."


def _remove(settings: Settings, options: Namespace) -> int:
    require_deciding_person("remove machines from a fleet")
    require_nats()
    from synapse.link.membership import remove

    is_cut_off = remove(settings.home, settings.logs, options.name)
    waiting = _number_waiting(settings, options.name)
    if options.json:
        print_json({"removed": options.name, "cut_off": is_cut_off, "waiting": waiting})
        return DONE
    if is_cut_off:
        print_notice(f"{options.name} is removed: its key is refused from now on, and it has no connection.")
    else:
        print_notice(
            f"{options.name} is removed, but the fleet's server has not confirmed that its connection has ended.\n"
            "`synapse fleet doctor` checks the server; its key is refused when the server has read the change."
        )
    print_notice(
        f"Other machines that allowed it more keep that for its name, also if another machine gets the name:\n"
        f"`synapse fleet allow {options.name} none` there takes it back."
    )
    if waiting:
        place = f"for {options.name} in the outbox of this machine"
        several = f"{waiting} messages wait {place}, and are tried until they expire."
        one = f"1 message waits {place}, and is tried until it expires."
        becoming = "It becomes" if waiting == 1 else "They become"
        print_notice(
            f"{one if waiting == 1 else several}\n"
            f"{becoming} `uncertain` if a machine joins under that name.\n"
            "`synapse fleet outbox` lists what waits, and --cancel TASK takes it back."
        )
    return DONE


def _number_waiting(settings: Settings, machine: str) -> int | None:
    """Returns how many messages of this machine another one has not accepted; None if the link does not tell."""
    with suppress(SynapseError):
        outbox = object_in(ask_link(str(settings.home), "GET", "/fleet/status"), "outbox")
        waiting = [one for one in objects_in(outbox, "waiting") if one.get("to") == machine]
        return sum((one.get("open") or 0) - (one.get("cancels") or 0) for one in waiting)
    return None


def _start(settings: Settings, options: Namespace) -> int:
    require_deciding_person("start the link")
    config = _require_member(settings)
    require_nats()
    if config.runs_server:
        _server(settings).start()
    pid = _start_link(settings)
    if options.json:
        print_json({"link": pid})
    else:
        print_notice(f"The link runs (pid {pid}).  (synapse fleet status)")
    return DONE


def _stop(settings: Settings, options: Namespace) -> int:
    require_deciding_person("stop the link")
    config = _require_member(settings)
    require_nats()
    from synapse.link.background import stop_link

    stopped = stop_link(settings.home)
    ran = config.runs_server and _server(settings).stop()
    if options.json:
        print_json({"stopped": stopped})
        return DONE
    if config.runs_server and not stopped and not ran:
        print_notice("The link did not run, and neither did the fleet's server.")
        return DONE
    print_notice("The link is stopped." if stopped else "The link did not run.")
    if ran:
        print_notice("The fleet's server is stopped too: no machine reaches another until `synapse fleet start` here.")
    elif config.runs_server:
        print_notice("The fleet's server did not run.")
    return DONE


def _doctor(settings: Settings, options: Namespace) -> int:
    _require_member(settings)
    require_nats()
    from synapse.cli.doctor import MARKS, PROBLEM
    from synapse.cli.fleet_doctor import examine_fleet

    findings = examine_fleet(settings)
    problems = [finding for finding in findings if finding.level == PROBLEM]
    if options.json:
        print_json({"ok": not problems, "findings": [asdict(finding) for finding in findings]})
        return FAILED if problems else DONE
    for finding in findings:
        print_result(f"{MARKS[finding.level]} {finding.subject:<12} {finding.text}")
        if finding.advice:
            print_result(f"  {'':<12} → {finding.advice}")
    return FAILED if problems else DONE


_ACTIONS: Mapping[str, Callable[[Settings, Namespace], int]] = {
    "create": _create,
    "invite": _invite,
    "join": _join,
    "status": _status,
    "outbox": _outbox,
    "allow": _allow,
    "leave": _leave,
    "remove": _remove,
    "start": _start,
    "stop": _stop,
    "doctor": _doctor,
}


def _require_member(settings: Settings) -> FleetConfig:
    config = load_fleet(settings.home)
    if config is None:
        raise NotInFleet
    return config


def _server(settings: Settings) -> FleetServer:
    from synapse.link.server import FleetServer

    return FleetServer(settings.home, settings.logs)


def _start_link(settings: Settings) -> int:
    """Starts the link unless it runs, and returns its pid. Raises LinkDown: the membership is kept."""
    from synapse.link.background import start_link

    try:
        return start_link(settings.home, settings.logs).pid
    except SynapseError as error:
        raise LinkDown(
            f"the membership is stored, but the link does not start: {error}",
            hint=f"{error.hint}\n`synapse fleet start` tries again".strip(),
        ) from error


def _name_gateways(settings: Settings) -> None:
    """Tells the person to restart the gateways that run here: they read the membership when they start."""
    running = gateways(settings.home).entries()
    if running:
        addresses = ", ".join(sorted(entry.endpoint for entry in running))
        print_notice(
            f"Restart the gateway at {addresses}, so that it notices:  synapse stop gateway, then start it again"
        )


def _membership(config: FleetConfig) -> dict[str, Any]:
    return {
        "fleet": config.fleet,
        "machine": config.machine,
        "servers": [without_password(server) for server in config.servers],
        "gateway": config.is_gateway,
        "runs_server": config.runs_server,
    }


def _text(fields: Mapping[str, Any], name: str) -> str:
    return plain(str(fields.get(name) or ""))
