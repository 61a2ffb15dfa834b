"""`synapse service`: the gateway, the fleet's link and teams as systemd user units, which start with the machine."""

from __future__ import annotations

import os
import shlex
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from synapse.cli.exit_codes import DONE
from synapse.cli.link import require_nats
from synapse.cli.output import print_json, print_notice, print_result
from synapse.cli.parser import ActionParser, VerbParser
from synapse.cli.person import require_deciding_person
from synapse.cli.team_files import trusted_source
from synapse.client.hosts import GATEWAY, current_folder, open_gateways
from synapse.client.lines import plain, short_path
from synapse.client.times import lasting
from synapse.client.versions import GATEWAY_UNIT
from synapse.config.fleet import load_fleet
from synapse.config.paths import user_folder
from synapse.config.private_files import make_folders, write_private
from synapse.config.process import SystemClock
from synapse.config.settings import load_settings
from synapse.config.trust import Trust
from synapse.core.address import short_name
from synapse.core.errors import CommandMissing, Conflict, NotFound, NotInFleet, SynapseError, UnsupportedOperation
from synapse.link.background import stop_link
from synapse.services import systemd
from synapse.services.consent import forget_installed, record_installed
from synapse.services.installation import lasting_command
from synapse.services.systemd import ACTIVE, ENABLED, FAILED, INACTIVE, ServiceState
from synapse.services.unit import (
    PREFIX,
    SUFFIX,
    Installed,
    Unit,
    differences,
    read_installed,
    service_variables,
    team_unit_name,
)
from synapse.teams.source import read_source, team_file

EXAMPLES = """
synapse service install gateway                  start the gateway now and with each login
synapse service install link                     the same for this machine's link to its fleet
synapse service install team .synapse/team.toml  the same for a team
synapse service install gateway --print          only print the unit
synapse service status
synapse service uninstall gateway
"""
TEAM = "team"
LINK = "link"
LINK_UNIT = f"{PREFIX}{LINK}{SUFFIX}"
VARIABLE_FILE = "service.env"
SECONDS_PER_AGENT = 45
"""A little longer than the start of an agent may take."""
_ACTION = "install or uninstall services"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """A unit file of ours that is installed."""

    path: Path
    text: str
    about: Installed

    @property
    def what(self) -> str:
        """What it runs: TEAM, LINK or GATEWAY."""
        if self.about.team:
            return TEAM
        return LINK if self.path.name == LINK_UNIT else GATEWAY


def run_service(arguments: list[str]) -> int:
    """Installs, shows or uninstalls services and returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.what == TEAM and not options.file and options.action != "status":
        parser.error(f"`team` needs a FILE: synapse service {options.action} team .synapse/team.toml")
    if options.what != TEAM and options.file:
        parser.refuse(options.file)
    return _ACTIONS[options.action](options)


def _parser() -> VerbParser:
    parser = VerbParser("service", examples=EXAMPLES, json=False)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=ActionParser)
    summaries = {
        "install": "write a systemd user unit, start it, and start it with each login",
        "status": "show the installed services and what systemd says of them",
        "uninstall": "stop a service and remove its unit",
    }
    for name, text in summaries.items():
        action = actions.add_parser(name, help=text, examples=EXAMPLES, summary=text)
        action.add_argument("what", choices=(GATEWAY, LINK, TEAM), nargs="?" if name == "status" else None)
        named = "the team file" if name == "install" else "the team file, or the name of the team"
        action.add_argument("file", nargs="?", default="", metavar="FILE", help=named)
        if name == "install":
            action.add_argument("--print", action="store_true", help="print the unit, and change nothing")
    return parser


def _install(options: Namespace) -> int:
    if options.print:
        print_result(_wanted(options.what, options.file).text().rstrip("\n"))
        return DONE
    # A service runs programs when nobody looks.
    require_deciding_person(_ACTION)
    if options.what == TEAM:
        trusted_source(team_file(options.file, current_folder()), asks=not options.json)
    unit = _wanted(options.what, options.file)
    path, text = systemd.unit_folder() / unit.name, unit.text()
    _require_systemd(path)
    before = _read(path)
    if before is not None:
        _require_ours(path, before, unit)
    else:
        _require_free(options.what)
    is_new = before is None or before.text != text
    if is_new:
        make_folders(path.parent)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        write_private(draft, text)
        draft.replace(path)
        systemd.reload_units()
    record_installed(load_settings().home, unit.name, SystemClock().now())
    runs = systemd.state_of(unit.name).active == ACTIVE
    if options.what == LINK and not runs:
        # One may run outside of the service, and a machine has one. The fleet's server goes on meanwhile.
        stop_link(load_settings().home)
    systemd.start_always(unit.name, again=is_new)
    if options.json:
        print_json(_report(_Service(path=path, text=text, about=Installed(unit.team, unit.file))).fields())
        return DONE
    if not is_new and runs:
        print_notice(f"{unit.name} runs already, and its unit is as it should be.  (synapse service status)")
    else:
        done = "replaced and restarted" if before is not None and is_new else "runs, and starts with each login"
        print_notice(f"{unit.name} {done}: {plain(short_path(str(path)))}  (synapse service status)")
    _advise_to_linger()
    return DONE


def _require_systemd(path: Path) -> None:
    if why := systemd.objection_to_units():
        raise UnsupportedOperation(
            f"services need systemd, and {why}; the unit belongs at {path}",
            hint="`--print` prints it; without systemd, let your own supervisor run its ExecStart",
        )


def _require_ours(path: Path, before: _Service, unit: Unit) -> None:
    """Raises Conflict where the unit of this name is of another team."""
    if before.about != Installed(unit.team, unit.file):
        raise Conflict(
            f"{path} is the unit of another team file: {before.about.file}",
            hint=f"give the team another name in its file, or: synapse service uninstall team {before.about.team}",
        )


def _require_free(what: str) -> None:
    """Raises NotInFleet for a link without a fleet, and Conflict if a gateway runs outside of a service."""
    if what == LINK and load_fleet(load_settings().home) is None:
        raise NotInFleet("this machine belongs to no fleet, so it needs no link")
    running = open_gateways().entries() if what == GATEWAY else []
    if running:
        name = short_name(running[0])
        raise Conflict(
            f"the gateway runs already (pid {running[0].pid}), and two cannot have the same port",
            hint=f"synapse stop {name} && synapse service install gateway",
        )


def _wanted(what: str, file: str) -> Unit:
    """Returns the unit that would be installed from here.

    Raises UnsupportedOperation for a command that soon disappears, and for a team what `read_source` raises.
    """
    unit = Unit(
        name=GATEWAY_UNIT,
        description="Synapse gateway: one address for all agents",
        command=[lasting_command(), GATEWAY],
        variables=service_variables(os.environ),
        variable_file=os.path.join(user_folder(os.environ), VARIABLE_FILE),
    )
    if what == GATEWAY:
        return unit
    if what == LINK:
        return replace(
            unit,
            name=LINK_UNIT,
            description="Synapse link: connects the agents of this machine with its fleet",
            command=[lasting_command(), LINK],
            # Every message to another machine waits for it.
            restart_delay_seconds=1,
            # The fleet's NATS server, which no other machine should miss because a link has ended.
            children_survive=True,
        )
    source = read_source(team_file(file, current_folder()), load_settings().home)
    team = source.team()
    return replace(
        unit,
        name=team_unit_name(team.name),
        description=f"Synapse team {team.name}",
        command=[lasting_command(), "up", "--foreground", str(source.file)],
        team=team.name,
        file=str(source.file),
        # Its agents start one after the other, and stop so.
        start_seconds=unit.start_seconds + SECONDS_PER_AGENT * len(team.members),
        stop_seconds=unit.stop_seconds + SECONDS_PER_AGENT * len(team.members),
    )


def _uninstall(options: Namespace) -> int:
    require_deciding_person(_ACTION)
    service = _find(options.what, options.file)
    _require_systemd(service.path)
    systemd.stop_always(service.path.name)
    service.path.unlink()
    forget_installed(load_settings().home, service.path.name)
    systemd.reload_units()
    server_notice = _stop_server() if service.what == LINK else ""
    if options.json:
        print_json({"unit": service.path.name, "path": str(service.path), "active": "removed"})
    else:
        print_notice(f"{service.path.name} is stopped and removed.")
        if server_notice:
            print_notice(server_notice)
    return DONE


def _stop_server() -> str:
    """Stops the fleet's server, which the link's service has started and systemd leaves alone.

    Returns what to tell of it; empty if this machine does not run it.
    """
    settings = load_settings()
    config = load_fleet(settings.home)
    if config is None or not config.runs_server:
        return ""
    try:
        require_nats()
    except CommandMissing as missing:
        return f"The fleet's server goes on: {missing}.  ({missing.hint}; then: synapse fleet stop)"
    from synapse.link.server import FleetServer

    FleetServer(settings.home, settings.logs).stop()
    return "The fleet's server is stopped too.  (synapse fleet start)"


def _find(what: str, file: str) -> _Service:
    """Returns the installed service of the gateway or of a team, by its file or name. Raises NotFound."""
    path = str(team_file(file, current_folder())) if file else ""
    for service in _installed():
        if service.what == what and (what != TEAM or file == service.about.team or path == service.about.file):
            return service
    foreign = systemd.unit_folder() / (LINK_UNIT if what == LINK else GATEWAY_UNIT)
    if what != TEAM and foreign.exists():
        _read(foreign)
    raise NotFound(
        f"{file if what == TEAM else f'the {what}'} is not installed as a service", hint="synapse service status"
    )


def _status(options: Namespace) -> int:
    if options.what in (GATEWAY, LINK) or options.file:
        services = [_find(options.what, options.file)]
    else:
        services = [one for one in _installed() if one.about.team or options.what != TEAM]
    reports = [_report(service) for service in services]
    if options.json:
        print_json([report.fields() for report in reports])
        return DONE
    if not services:
        print_notice("No service is installed.  (synapse service install gateway)")
    for report in reports:
        for line in report.lines(SystemClock().now()):
            print_result(line)
    if services:
        _advise_to_linger()
    return DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReport:
    """What is known of an installed service."""

    service: _Service
    state: ServiceState | None
    differs: list[str]
    """In what its unit differs from the one that would be installed from here."""
    problem: str
    """Why that, or its state, is not known."""

    @property
    def unit(self) -> str:
        return self.service.path.name

    @property
    def has_failed(self) -> bool:
        return self.state is not None and self.state.active == FAILED

    def fields(self) -> dict[str, object]:
        """Returns the `--json` object."""
        about, state = self.service.about, self.state
        fields: dict[str, object] = {
            "unit": self.unit,
            "path": str(self.service.path),
            "team": about.team or None,
            "file": about.file or None,
            "differs": self.differs,
            "problem": self.problem or None,
            "linger": systemd.lingers(),
            "active": None,
        }
        if state is None:
            return fields
        return {
            **fields,
            "active": state.active,
            "detail": state.detail,
            "since": state.since.isoformat().replace("+00:00", "Z") if state.since else None,
            "restarts": state.restarts,
            "enabled": state.enabled == ENABLED,
            "result": state.result,
            "pid": state.pid or None,
        }

    def lines(self, now: datetime) -> Iterator[str]:
        """Yields what a person reads."""
        about = self.service.about
        yield f"{self.unit}  {self.summary(now)}"
        if about.team:
            yield f"  team     {plain(about.team)}, {plain(short_path(about.file))}"
        yield f"  unit     {plain(short_path(str(self.service.path)))}"
        for text, command in self.problems():
            yield f"  ! {plain(text)}" + (f"\n    ({plain(command)})" if command else "")

    def summary(self, now: datetime) -> str:
        """Returns what systemd says of it."""
        state = self.state
        if state is None:
            return "unknown"
        since = f" for {lasting(state.since, now)}" if state.since else ""
        again = f", {state.restarts} restart{'' if state.restarts == 1 else 's'}" if state.restarts else ""
        detail = f" ({state.detail})" if state.detail != state.active else ""
        return f"{state.active}{detail}{since}{again}"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yields what a person may want to change, each with the command for it."""
        unit, about, state = self.unit, self.service.about, self.state
        if state and state.active == INACTIVE:
            yield "it was stopped", f"systemctl --user start {unit}"
        elif state and state.active != ACTIVE:
            yield f"it does not run: {state.result}", f"journalctl --user --unit {unit}"
        if state and state.enabled != ENABLED:
            yield "it does not start with the login", f"systemctl --user enable {unit}"
        if self.problem:
            yield self.problem, ""
        if self.differs:
            what = shlex.join([TEAM, about.file]) if about.team else self.service.what
            differing = ", ".join(self.differs)
            yield f"what would be installed from here differs: {differing}", f"synapse service install {what}"


def service_reports() -> list[ServiceReport]:
    """Returns what is known of each installed service. Raises SynapseError if systemd does not answer."""
    return [_report(service) for service in _installed()]


def _report(service: _Service) -> ServiceReport:
    about, differs, problem, state = service.about, [], "", None
    try:
        differs = differences(service.text, _wanted(service.what, about.file).text())
        source = read_source(Path(about.file), load_settings().home) if about.team else None
        if source and source.trust is not Trust.TRUSTED:
            problem = f"its file is {source.trust.value}, so it will not start  (synapse trust {source.project.folder})"
    except SynapseError as error:
        problem = str(error)
    if why := systemd.objection_to_units():
        problem = why
    else:
        state = systemd.state_of(service.path.name)
    return ServiceReport(service=service, state=state, differs=differs, problem=problem)


def _advise_to_linger() -> None:
    if systemd.lingers() is False:
        print_notice(
            "Services start when you log in, and stop when you log out.  (loginctl enable-linger runs them always)"
        )


def _installed() -> list[_Service]:
    paths = sorted(systemd.unit_folder().glob(f"{PREFIX}*{SUFFIX}"))
    services: list[_Service] = []
    for path in paths:
        try:
            service = _read(path)
        except Conflict:
            continue  # of somebody else
        if service is not None:
            services.append(service)
    return services


def _read(path: Path) -> _Service | None:
    """Returns the unit in a file; None if there is none. Raises Conflict if we did not write it."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    about = read_installed(text)
    if about is None:
        raise Conflict(
            f"{path} was not written by Synapse, and stays as it is", hint=f"move it away: mv {path} {path}.mine"
        )
    return _Service(path=path, text=text, about=about)


_ACTIONS: dict[str, Callable[[Namespace], int]] = {"install": _install, "status": _status, "uninstall": _uninstall}
