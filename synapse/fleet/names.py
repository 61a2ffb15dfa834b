"""Names in a fleet: machines, remote agents, and the subjects on which machines talk.

    synapse.v1.relay.TO.FROM         core request   a relayed message, answered with its receipt
    synapse.v1.mail.TO.FROM          SYN_MAIL       relayed messages and receipts for a machine that is away
    synapse.v1.ask.TO.FROM           core request   a request to an agent's host: reads, cancel, streams, terminals
    synapse.v1.command.TO.FROM       core request   a gateway's command for one of its callers, or request for a log
    synapse.v1.stream.TO.FROM.ID     core           the frames of a stream or a terminal that `ask` has opened
    synapse.v1.log.MACHINE           SYN_LOG        batches of the machine's log
    synapse.v1.enrol.KEY             core request   a new machine's key, to the fleet's server; KEY is its invitation's
    _INBOX.ASKER.ASKED.…             core           the answer to a request of ASKER, by ASKED

Each subject has one machine that may write it, and the server enforces that: FROM, MACHINE, or ASKED.
"""

from __future__ import annotations

import re
from typing import Final

ROOT: Final = "synapse.v1"
ENROL: Final = f"{ROOT}.enrol"
ENROL_INBOX: Final = "_ENROL"
"""The first token of the subjects on which a machine that joins gets its answer."""
ENGINE: Final = "JS"
"""Stands for the engine where others name a machine, whose names have small letters."""
JETSTREAM_API: Final = "$JS.API"
"""The first tokens of the subjects on which JetStream is asked."""
ENGINE_API: Final = "synapse.engine"
"""The same at a server that Synapse runs, where machines have no JetStream of their own: see `link.members`."""
MAIL_STREAM: Final = "SYN_MAIL"
LOG_STREAM: Final = "SYN_LOG"
PRESENCE: Final = "SYN_PRESENCE"
"""Key-value bucket, in memory, entries expire: who is present."""
INCARNATIONS: Final = "SYN_INCARNATION"
"""Key-value bucket: the current incarnation of each machine."""
KEYS: Final = "SYN_KEYS"
"""Key-value bucket: the API keys and browser sessions of the gateways, as `MACHINE.KEYID`."""
LOGS: Final = f"{ROOT}.log.*"
_TO_MACHINES: Final = frozenset({"relay", "ask", "command", "stream"})
"""The kinds of subjects that a machine answers; JetStream answers on those of streams."""
_MACHINE: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")


def is_machine_name(name: str) -> bool:
    """Decides whether `name` can name a machine: up to 32 letters a to z, digits and hyphens."""
    return _MACHINE.fullmatch(name) is not None


def relay_subject(to: str, sender: str) -> str:
    return f"{ROOT}.relay.{to}.{sender}"


def mail_subject(to: str, sender: str) -> str:
    return f"{ROOT}.mail.{to}.{sender}"


def ask_subject(to: str, sender: str) -> str:
    return f"{ROOT}.ask.{to}.{sender}"


def command_subject(to: str, sender: str) -> str:
    return f"{ROOT}.command.{to}.{sender}"


def is_command(subject: str) -> bool:
    """Decides whether only gateways may publish on a subject. A machine may be named `command`."""
    return subject.startswith(f"{ROOT}.command.")


def stream_subject(to: str, sender: str, stream_id: str) -> str:
    return f"{ROOT}.stream.{to}.{sender}.{stream_id}"


def log_subject(machine: str) -> str:
    return f"{ROOT}.log.{machine}"


def inbox_prefix(machine: str) -> str:
    """Returns the prefix of the subjects on which `machine` gets the answers to its requests."""
    return f"_INBOX.{machine}"


def inbox_subject(asker: str, asked: str, rest: str) -> str:
    """Returns a subject for the answer of `asked`, a machine or ENGINE."""
    return f"_INBOX.{asker}.{asked}.{rest}"


def enrol_subject(invitation_key: str) -> str:
    return f"{ENROL}.{invitation_key}"


def enrol_inbox(invitation_key: str) -> str:
    """Returns the prefix of the subjects on which the holder of an invitation gets answers."""
    return f"{ENROL_INBOX}.{invitation_key}"


def receiver_machine(subject: str) -> str:
    """Returns the machine to which a message with this subject goes, or ENGINE."""
    kind, *rest = subject.removeprefix(f"{ROOT}.").split(".")
    return rest[0] if kind in _TO_MACHINES and len(rest) > 1 else ENGINE


def mail_consumer(machine: str) -> str:
    """Returns the name of the machine's consumer of SYN_MAIL."""
    return f"m_{machine}"


def sender_machine(subject: str) -> str:
    """Returns the machine that wrote a message with this subject, as the server has enforced it."""
    kind, *rest = subject.removeprefix(f"{ROOT}.").split(".")
    return rest[0] if kind == "log" else rest[1]
