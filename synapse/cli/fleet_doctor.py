"""`synapse fleet doctor`: tries from this machine what a fleet needs, and what it must refuse."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from synapse import __version__
from synapse.cli.doctor import NOTE, OK, PROBLEM, Finding
from synapse.client.lines import plain
from synapse.client.link import NEARLY_FULL, knows_machines, waiting_text
from synapse.client.times import span
from synapse.config.fleet import FleetConfig, load_fleet
from synapse.config.process import SystemClock, run
from synapse.config.settings import Settings
from synapse.core.errors import NotInFleet, SynapseError
from synapse.core.json_text import object_in, objects_in
from synapse.fleet import names
from synapse.fleet.bus import KEY_REFUSED, BusError, NobodyThere, NotAllowed, NotConnected
from synapse.link import certificates
from synapse.link.asking import REJOIN_HINT
from synapse.link.background import read_status
from synapse.link.nats_bus import NatsBus, access_of
from synapse.link.server import RENEW_DAYS, FleetServer, checked_binary

CONNECT_SECONDS: Final = 5.0
OLD_SECONDS: Final = 600.0
"""A message that waits for longer, while its machine is present, is a problem."""
FULL: Final = 95
"""How much of its limits the outbox uses, in percent, when messages are refused already or soon."""
CLOCK_SECONDS: Final = 60.0
RESTART: Final = "synapse fleet stop && synapse fleet start"
SOMEBODY_ELSE: Final = "somebody-else"
NOBODY: Final = "nobody"
"""To whom it writes as somebody else: no machine."""


def examine_fleet(settings: Settings) -> list[Finding]:
    """Runs all checks. Raises NotInFleet."""
    config = load_fleet(settings.home)
    if config is None:
        raise NotInFleet
    return [*_link(settings), *_server(settings, config), *run(_connection(settings, config))]


def _link(settings: Settings) -> Iterator[Finding]:
    try:
        told = read_status(settings.home, settings.logs)
    except SynapseError as error:
        yield Finding(PROBLEM, "link", str(error), error.hint)
        return
    version = str(told.get("version") or "")
    if version and version != __version__:
        yield Finding(NOTE, "link", f"it runs version {version}, and this is {__version__}", RESTART)
    elif told.get("connected"):
        yield Finding(OK, "link", "it runs, connected")
    else:
        yield Finding(NOTE, "link", "it runs, and tries to connect")
    yield from _outbox(told)
    yield from _chain(told)
    yield from _shared_keys(told)
    others = {str(machine.get("version") or "") for machine in objects_in(told, "machines")} - {"", __version__}
    if not told.get("connected"):
        return
    if others:
        yield Finding(NOTE, "versions", f"other machines run {', '.join(sorted(others))}", "upgrade them one by one")
    else:
        yield Finding(OK, "versions", f"all machines that are present run {__version__}")


def _outbox(told: dict[str, Any]) -> Iterator[Finding]:
    outbox = object_in(told, "outbox")
    is_well = True
    percent = outbox.get("percent") or 0
    if percent >= NEARLY_FULL:
        is_well = False
        text = f"it is {percent} % full: {outbox.get('nearest')}"
        yield Finding(PROBLEM if percent >= FULL else NOTE, "outbox", plain(text), "synapse fleet outbox")
    for row in objects_in(outbox, "waiting"):
        age = _seconds_since(row.get("oldest")) or 0.0
        if age > OLD_SECONDS:
            is_well = False
            yield _old_messages(row, age, told)
    if is_well:
        yield Finding(OK, "outbox", waiting_text(outbox))


def _old_messages(row: dict[str, Any], age: float, told: dict[str, Any]) -> Finding:
    machine = plain(str(row.get("to")))
    many = f"{waiting_text(row)} for {machine}"
    old = f"for {span(age)}" if row.get("open") == 1 else f"the oldest for {span(age)}"
    if _is_present(row.get("to"), told):
        advice = f"`synapse fleet outbox` says why; `synapse fleet doctor` on {machine}"
        return Finding(PROBLEM, "outbox", f"{many}, though it is present, {old}", advice)
    return Finding(NOTE, "outbox", f"{many}{_absent(told)}, {old}", "synapse fleet outbox")


def _chain(told: dict[str, Any]) -> Iterator[Finding]:
    """Yields what is missing of the logs of other machines, if this one keeps a replica of them."""
    replica = object_in(told, "replica")
    if not replica:
        return
    if problem := replica.get("problem"):
        text = f"the replica of other machines' logs is not written: {problem}"
        yield Finding(PROBLEM, "chain", plain(text), "remove the cause; the link tries again every few seconds")
        return
    machines = {str(one.get("name")): one for one in objects_in(told, "machines")}
    keeping = sorted(name for name, one in machines.items() if one.get("ships_log") is False)
    logs = {str(log.get("machine")): log for log in objects_in(replica, "machines")}
    # A log that no machine sends any more is as complete as it will be.
    live = {name: log for name, log in logs.items() if name in machines or not knows_machines(told)}
    live = {name: log for name, log in live.items() if name not in keeping}
    gaps = [log for log in live.values() if log.get("incomplete")]
    yield from (_gap(log, told) for log in gaps)
    for name in keeping:
        before = "; what it sent before stays here" if name in logs else ""
        yield Finding(NOTE, "chain", plain(f"{name} keeps its log{before}"))
    if not gaps:
        silent = [name for name, one in machines.items() if one.get("present") and name not in (*live, *keeping)]
        yield Finding(OK, "chain", plain(_complete(len(live), silent)))


def _shared_keys(told: dict[str, Any]) -> Iterator[Finding]:
    """Yields the keys and sessions that several gateways publish, if this machine is one."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in objects_in(object_in(told, "keys"), "shared"):
        machines: list[Any] = one.get("machines") or []
        found.setdefault(" and ".join(map(str, machines)), []).append(one)
    for publishers, records in sorted(found.items()):
        counts = Counter(str(one.get("kind")) for one in records)
        what = " and ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items())
        ids = ", ".join(str(one.get("id")) for one in records)
        yield Finding(
            PROBLEM,
            "keys",
            plain(f"{publishers} publish the same {what}, so no other gateway honours them ({ids})"),
            "is one a copy of the other? delete `keys.json` and `sessions.json` in the state folder of the copy; "
            "`synapse keys revoke` ends them on all machines, as it should if one has forged them",
        )


def _complete(number: int, silent: Sequence[str]) -> str:
    """Returns how many logs are complete, and which machines have sent none."""
    parts: list[str] = []
    if number:
        many = "the log of 1 other machine is" if number == 1 else f"the logs of {number} other machines are"
        parts.append(f"{many} complete here")
    if silent:
        parts.append(f"{', '.join(silent)} {'has' if len(silent) == 1 else 'have'} sent nothing yet")
    return "; ".join(parts) or "no other machine has sent a log"


def _gap(log: dict[str, Any], told: dict[str, Any]) -> Finding:
    machine = plain(str(log.get("machine")))
    since = _seconds_since(log.get("incomplete_since"))
    lasting = f" for {span(since)}" if since is not None else ""
    if _is_present(log.get("machine"), told):
        text = f"the log of {machine} has been incomplete here{lasting}: {log.get('incomplete')}"
        advice = f"it is asked again every minute; if that does not help, `synapse fleet doctor` on {machine}"
        return Finding(PROBLEM, "chain", plain(text), advice)
    text = f"the log of {machine}{_absent(told)} may have been incomplete here{lasting}"
    return Finding(NOTE, "chain", text, "its link is asked for the rest when it is back")


def _is_present(machine: object, told: dict[str, Any]) -> bool:
    return any(one.get("name") == machine and one.get("present") for one in objects_in(told, "machines"))


def _absent(told: dict[str, Any]) -> str:
    """Returns what is known of a machine that does not seem to be present; nothing is without a connection."""
    return " (it is not present)" if told.get("connected") else ""


def _seconds_since(at: object) -> float | None:
    try:
        return (SystemClock().now() - datetime.fromisoformat(str(at))).total_seconds()
    except (ValueError, TypeError):
        return None


def _server(settings: Settings, config: FleetConfig) -> Iterator[Finding]:
    if not config.runs_server:
        return
    server = FleetServer(settings.home, settings.logs)
    try:
        checked_binary()
        yield Finding(OK, "binary", "nats-server is the one that this version knows")
    except SynapseError as error:
        yield Finding(PROBLEM, "binary", str(error), error.hint)
    if server.process() is None:
        conflict = server.port_conflict()
        if conflict is not None:
            yield Finding(PROBLEM, "server", f"it does not run: {conflict}", conflict.hint)
        else:
            yield Finding(PROBLEM, "server", "the fleet's NATS server does not run", "synapse fleet start")
    else:
        yield Finding(OK, "server", f"it listens on {server.members().listen}")
    yield _sync(server)
    if server.members().uses_tls:
        yield _certificate(certificates.days_left(server.folder, SystemClock().now()))


def _sync(server: FleetServer) -> Finding:
    try:
        told = json.loads((server.folder / "nats.conf").read_bytes())["jetstream"]["sync_interval"]
    except (OSError, ValueError, KeyError, TypeError):
        told = "unknown"
    if told == "always":
        return Finding(OK, "disk", "the server acknowledges a message when it is on the disk (sync_interval: always)")
    return Finding(PROBLEM, "disk", f"a power cut loses acknowledged messages (sync_interval: {told})", RESTART)


def _certificate(days: int) -> Finding:
    if days < 0:
        return Finding(
            PROBLEM, "certificate", "the server's certificate has expired", "`synapse fleet start` on its machine"
        )
    if days < RENEW_DAYS:
        return Finding(NOTE, "certificate", f"the server's certificate is valid for {days} days", "its link renews it")
    return Finding(OK, "certificate", f"the server's certificate is valid for {days} days")


async def _connection(settings: Settings, config: FleetConfig) -> list[Finding]:
    async with NatsBus(access_of(settings.home, config)) as bus:
        try:
            await bus.wait_connected(CONNECT_SECONDS)
        except NotConnected as error:
            if KEY_REFUSED in str(error):
                return [Finding(PROBLEM, "connection", str(error), REJOIN_HINT)]
            return [Finding(PROBLEM, "connection", str(error), _server_advice(settings, config))]
        return [finding async for finding in _examine_bus(bus, config)]


def _server_advice(settings: Settings, config: FleetConfig) -> str:
    """Returns what to do about a server that does not answer."""
    if not config.runs_server:
        return "`synapse fleet doctor` on the server's machine"
    is_running = FleetServer(settings.home, settings.logs).process() is not None
    return RESTART if is_running else "see `server` above"


async def _examine_bus(bus: NatsBus, config: FleetConfig) -> AsyncGenerator[Finding, None]:
    yield Finding(OK, "connection", f"NATS {bus.server.get('version', '?')} at {bus.server_address}")
    try:
        await bus.check()
        yield Finding(OK, "rights", "this machine may do what it needs")
    except BusError as error:
        yield Finding(PROBLEM, "rights", str(error), "docs/howto/fleet.md lists the rights that a machine needs")
        return
    yield await try_forgery(bus, config)
    yield await _clock(bus)
    if not config.runs_server and (certificate := bus.peer_certificate):
        yield _certificate(certificates.days_left_of(certificate, SystemClock().now()))
    if not config.runs_server:
        yield Finding(NOTE, "disk", "only the server's machine can tell whether it writes before it acknowledges")


async def try_forgery(bus: NatsBus, config: FleetConfig) -> Finding:
    """Tries to act as another machine, in a way that reaches nobody and stores nothing if it were allowed."""
    # The machine that runs the server deletes the entries of those that are removed.
    buckets = () if config.runs_server else (names.PRESENCE, names.INCARNATIONS)
    stored = [
        names.log_subject(SOMEBODY_ELSE),
        names.mail_subject(NOBODY, SOMEBODY_ELSE),
        *(f"$KV.{bucket}.{SOMEBODY_ELSE}" for bucket in buckets),
    ]
    sent = [
        subject(NOBODY, SOMEBODY_ELSE) for subject in (names.relay_subject, names.ask_subject, names.command_subject)
    ]
    tries: dict[str, Awaitable[object]] = {
        **{subject: bus.try_to_keep(subject) for subject in stored},
        **{subject: bus.request(subject, b"", CONNECT_SECONDS) for subject in sent},
        "reading another's log": bus.last_kept(names.log_subject(SOMEBODY_ELSE)),
    }
    allowed: list[str] = []
    problems: list[str] = []
    for what, attempt in tries.items():
        try:
            await attempt
            allowed.append(what)
        except NotAllowed:
            continue
        except NobodyThere:
            allowed.append(what)
        except BusError as error:
            problems.append(str(error))
    if problems:
        return Finding(PROBLEM, "forgery", f"it could not be tried: {problems[0]}")
    if allowed:
        return Finding(
            NOTE,
            "forgery",
            f"the server lets this machine act as another ({', '.join(allowed)})",
            "give each machine a user with the rights in docs/howto/fleet.md, or trust all of them",
        )
    if not bus.is_engine_apart:
        return Finding(
            NOTE,
            "forgery",
            "acting as another machine was refused, but a stolen key can use all of JetStream in this account",
            "docs/howto/fleet.md says what that means",
        )
    return Finding(OK, "forgery", "acting as another machine was tried, and refused")


async def _clock(bus: NatsBus) -> Finding:
    try:
        told = await bus.ask_engine(f"STREAM.INFO.KV_{names.PRESENCE}")
        server_time = datetime.fromisoformat(str(told["ts"])[:19] + "+00:00")
    except (BusError, KeyError, ValueError) as error:
        return Finding(NOTE, "clock", f"the server's time is not known: {error}")
    apart = (SystemClock().now() - server_time).total_seconds()
    if abs(apart) > CLOCK_SECONDS:
        where = "ahead of" if apart > 0 else "behind"
        return Finding(
            NOTE, "clock", f"it is {span(abs(apart))} {where} the server's", "set it: timedatectl set-ntp true"
        )
    return Finding(OK, "clock", "it agrees with the server's")
