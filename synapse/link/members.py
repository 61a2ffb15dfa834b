"""The members of a fleet whose server Synapse runs: its machines, the invitations, and what each may do at the server.

    invite ─► Invited, by a key of its own ─► enrol ─► FleetMember, by its key ─► remove ─► a name in `Members.removed`

A machine may publish only under its own name, and hear only what is for it: see `permissions`.

Permissions alone do not keep a machine from JetStream's interface: a request names the subject to which its answer is
sent, the server sends it there whatever the rights of the asker, and an answer on `$JS.API.STREAM.DELETE.…` is a new
request. So JetStream is in an account of its own, and that of the machines imports ENGINE_SUBJECTS from it. An answer
of the engine is sent in the machines' account, where `$JS.API` is nothing, and the server does not take an answer for a
new request to an import with a wildcard (`tests/fleet/test_reflections.py` tries it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from synapse.config.fleet import SEED_FILE
from synapse.core.errors import Conflict, InvitationRefused, NameTaken, NotFound
from synapse.fleet import names

INVITATION_SECONDS: Final = 600
GRACE_SECONDS: Final = 60
"""A used invitation lets its machine ask again for so long, in case the answer was lost."""
MOST_REMOVED: Final = 1000
"""How many names of removed machines are kept: the newest."""
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetMember:
    """A machine that may connect."""

    name: str
    key: str
    """Its public nkey."""
    is_gateway: bool = False
    runs_server: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Invited:
    """A machine that was invited, by a key that lets it ask for its enrolment and nothing else."""

    name: str
    key: str
    is_gateway: bool
    expires_at: float
    """Seconds since 1970, by this machine's clock."""
    used_by: str = ""
    """The public nkey of the machine that has used it; empty before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Everything from which the server's configuration is made."""

    fleet: str
    listen: str
    """Host and port, as `0.0.0.0:4222`."""
    servers: tuple[str, ...]
    """The addresses that other machines use."""
    machines: Mapping[str, FleetMember] = field(default_factory=dict[str, FleetMember])
    invited: Mapping[str, Invited] = field(default_factory=dict[str, Invited])
    """By their keys."""
    removed: tuple[str, ...] = ()
    """The names of machines that were removed, the newest last; without those that a machine has again."""

    @property
    def uses_tls(self) -> bool:
        return self.servers[0].startswith("tls:")

    def invite(self, invited: Invited) -> Members:
        """Raises NameTaken if a machine has the name. An earlier invitation of the name ends."""
        if invited.name in self.machines:
            raise NameTaken(
                f"the fleet has a machine named '{invited.name}' already",
                hint=_taken_hint(self.machines[invited.name]),
            )
        others = {key: one for key, one in self.invited.items() if one.name != invited.name}
        return replace(self, invited={**others, invited.key: invited})

    def enrol(self, invitation_key: str, machine_key: str, now: float) -> Members:
        """Adds the machine of an invitation, whose holder has proven to have it. The same machine may ask again.

        Raises:
            InvitationRefused: it has expired, or another machine has used it.
            NameTaken: another machine has the name by now.
            Conflict: the key is another machine's, or an invitation's.
        """
        invited = self.invited.get(invitation_key)
        if invited is None or (not invited.used_by and now >= invited.expires_at):
            raise InvitationRefused("the invitation has expired")
        if invited.used_by not in ("", machine_key):
            raise InvitationRefused(f"another machine has used the invitation of '{invited.name}' already")
        machine = FleetMember(name=invited.name, key=machine_key, is_gateway=invited.is_gateway)
        present = self.machines.get(invited.name, machine)
        if present != machine:
            raise NameTaken(f"the fleet has a machine named '{invited.name}' already", hint=_taken_hint(present))
        others = {one.key for one in self.machines.values() if one.name != invited.name}
        if machine_key in others or machine_key in self.invited:
            # A server does not start with two users of one key.
            raise Conflict(
                "this key belongs to another machine of the fleet",
                hint=f"delete {SEED_FILE} in the folder `fleet` of the machine that joins, and join again",
            )
        used = replace(invited, used_by=machine_key, expires_at=min(invited.expires_at, now + GRACE_SECONDS))
        return replace(
            self,
            machines={**self.machines, machine.name: machine},
            invited={**self.invited, invitation_key: used if not invited.used_by else invited},
            removed=tuple(name for name in self.removed if name != machine.name),
        )

    def remove(self, name: str) -> Members:
        """Removes a machine, and all invitations for its name. Raises NotFound, Conflict."""
        pending = {key for key, one in self.invited.items() if one.name == name}
        if name not in self.machines and not pending:
            raise NotFound(f"the fleet has no machine named '{name}'", hint="`synapse fleet status` lists them")
        if name in self.machines and self.machines[name].runs_server:
            raise Conflict(
                f"{name} runs the fleet's server", hint=f"`synapse fleet leave --end-fleet` on {name} ends the fleet"
            )
        return replace(
            self,
            machines={key: one for key, one in self.machines.items() if key != name},
            invited={key: one for key, one in self.invited.items() if key not in pending},
            removed=(*self.removed, name)[-MOST_REMOVED:] if name in self.machines else self.removed,
        )

    def without_expired(self, now: float) -> Members:
        """Removes the invitations that have expired, or were used GRACE_SECONDS ago."""
        kept = {key: one for key, one in self.invited.items() if now < one.expires_at}
        return replace(self, invited=kept) if len(kept) < len(self.invited) else self


def _taken_hint(machine: FleetMember) -> str:
    if machine.runs_server:
        return "choose another name: the machine with this one runs the fleet's server"
    return f"choose another name; or `synapse fleet remove {machine.name}` first, if it is the same machine"


def permissions(machine: FleetMember, api: str = names.ENGINE_API) -> dict[str, Any]:
    """Returns the subjects on which a machine may publish, and which it may hear.

    JetStream is asked on subjects that begin with `api`.
    """
    me, root = machine.name, names.ROOT
    publish = [
        *(f"{root}.{kind}.*.{me}" for kind in ("relay", "mail", "ask")),
        names.stream_subject("*", me, "*"),
        names.log_subject(me),
        # Not `allow_responses`: a machine could ask itself, with any subject as the one to answer on.
        names.inbox_subject("*", me, ">"),
        *(f"$KV.{bucket}.{me}" for bucket in (names.PRESENCE, names.INCARNATIONS)),
        # JetStream's interface has the name and the filter of a consumer in the subject, and checks that they are so.
        f"{api}.CONSUMER.CREATE.{names.MAIL_STREAM}.{names.mail_consumer(me)}.{names.mail_subject(me, '*')}",
        f"{api}.CONSUMER.MSG.NEXT.{names.MAIL_STREAM}.{names.mail_consumer(me)}",
        f"$JS.ACK.{names.MAIL_STREAM}.{names.mail_consumer(me)}.>",
        f"{api}.DIRECT.GET.{names.LOG_STREAM}.{names.log_subject(me)}",
        *(subject for bucket in (names.PRESENCE, names.INCARNATIONS) for subject in _reads_of(bucket, api)),
    ]
    hear = [
        *(f"{root}.{kind}.{me}.*" for kind in ("relay", "ask", "command")),
        names.stream_subject(me, "*", "*"),
        f"{names.inbox_prefix(me)}.>",
    ]
    if machine.is_gateway:
        publish += [names.command_subject("*", me), f"$KV.{names.KEYS}.{me}.*", *_reads_of(names.KEYS, api)]
        hear.append(names.LOGS)
    if machine.runs_server:
        publish += [f"{api}.INFO", f"{api}.STREAM.INFO.*", f"{api}.STREAM.CREATE.*", f"{names.ENROL_INBOX}.*.>"]
        # To delete what the fleet knows of a machine that was removed, and its mail.
        publish += [f"$KV.{bucket}.*" for bucket in (names.PRESENCE, names.INCARNATIONS)]
        publish += [f"$KV.{names.KEYS}.*.*", *_reads_of(names.KEYS, api)]
        publish.append(f"{api}.STREAM.PURGE.{names.MAIL_STREAM}")
        publish.append(f"{api}.STREAM.UPDATE.{names.MAIL_STREAM}")
        hear.append(names.enrol_subject("*"))
    return {"publish": {"allow": publish}, "subscribe": {"allow": hear}}


def _reads_of(bucket: str, api: str) -> list[str]:
    stream = f"KV_{bucket}"
    return [
        f"{api}.STREAM.MSG.GET.{stream}",
        f"{api}.STREAM.INFO.{stream}",
        f"{api}.CONSUMER.CREATE.{stream}.*.$KV.{bucket}.>",
        f"{api}.CONSUMER.MSG.NEXT.{stream}.*",
    ]


_BUCKETS: Final = (names.PRESENCE, names.INCARNATIONS, names.KEYS)
ENGINE_SUBJECTS: Final = (
    names.mail_subject("*", "*"),
    names.LOGS,
    *(f"$KV.{bucket}.*" for bucket in (names.PRESENCE, names.INCARNATIONS)),
    f"$KV.{names.KEYS}.*.*",
    f"$JS.ACK.{names.MAIL_STREAM}.>",
    *(
        f"{names.JETSTREAM_API}.{asked}"
        for asked in (
            f"CONSUMER.CREATE.{names.MAIL_STREAM}.*.{names.mail_subject('*', '*')}",
            *(f"CONSUMER.CREATE.KV_{bucket}.*.$KV.{bucket}.>" for bucket in _BUCKETS),
            f"CONSUMER.MSG.NEXT.{names.MAIL_STREAM}.*",
            *(f"CONSUMER.MSG.NEXT.KV_{bucket}.*" for bucket in _BUCKETS),
            f"DIRECT.GET.{names.LOG_STREAM}.{names.LOGS}",
            *(f"STREAM.MSG.GET.KV_{bucket}" for bucket in _BUCKETS),
            "STREAM.INFO.*",
            "STREAM.CREATE.*",
            "STREAM.PURGE.*",
            "STREAM.UPDATE.*",
            "INFO",
        )
    ),
)
"""The subjects of the engine that machines reach, if `permissions` allows it. No two overlap: both would answer.

All that change something have a wildcard, also where one name would do: NATS 2.15 makes the subject in the engine from
that of the request, and an answer has none. On an import without a wildcard, an answer is a request again.
"""


def invitation_permissions(key: str) -> dict[str, Any]:
    """Returns what the holder of an invitation may do: ask for the enrolment, and hear the answer."""
    return {
        "publish": {"allow": [names.enrol_subject(key)]},
        "subscribe": {"allow": [f"{names.enrol_inbox(key)}.>"]},
    }


def encode_members(members: Members) -> dict[str, Any]:
    """Returns the members as members.json has them."""
    return {
        "version": _FORMAT,
        "fleet": members.fleet,
        "listen": members.listen,
        "servers": list(members.servers),
        "machines": [
            {"name": one.name, "key": one.key, "gateway": one.is_gateway, "server": one.runs_server}
            for one in members.machines.values()
        ],
        "invited": [
            {
                "name": one.name,
                "key": one.key,
                "gateway": one.is_gateway,
                "expires_at": one.expires_at,
                "used_by": one.used_by,
            }
            for one in members.invited.values()
        ],
        "removed": list(members.removed),
    }


def decode_members(document: Any) -> Members:
    """Returns the members in members.json. Raises ValueError, TypeError, KeyError."""
    if document["version"] != _FORMAT:
        raise ValueError("it was written by another version of Synapse")
    machines = [
        FleetMember(
            name=str(row["name"]), key=str(row["key"]), is_gateway=bool(row["gateway"]), runs_server=bool(row["server"])
        )
        for row in document["machines"]
    ]
    invited = [
        Invited(
            name=str(row["name"]),
            key=str(row["key"]),
            is_gateway=bool(row["gateway"]),
            expires_at=float(row["expires_at"]),
            used_by=str(row["used_by"]),
        )
        for row in document["invited"]
    ]
    return Members(
        fleet=str(document["fleet"]),
        listen=str(document["listen"]),
        servers=tuple(cast("list[str]", document["servers"])),
        machines={one.name: one for one in machines},
        invited={one.key: one for one in invited},
        # Older versions have not kept them.
        removed=tuple(str(name) for name in document.get("removed", ())),
    )
