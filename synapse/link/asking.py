"""Asks other machines, and turns silence into errors for the callers of this one."""

from __future__ import annotations

from typing import Final, TypeVar

from synapse.core.address import PERSON, UNVERIFIED
from synapse.core.caller import Caller
from synapse.core.errors import LinkDown, MachineAway, OutcomeUnknown, SynapseError
from synapse.core.events import TaskEvent
from synapse.core.task import Task, TaskId
from synapse.fleet import asks
from synapse.fleet.bus import CUT_OFF, KEY_REFUSED, NO_CONNECTION, Bus, BusError, NobodyThere, NotConnected
from synapse.fleet.names import ask_subject, command_subject
from synapse.fleet.wire import UnreadableBody
from synapse.link.presence import Machines
from synapse.store.codec import UNREADABLE, read_events, read_task

ANSWER_SECONDS: Final = 8.0
"""How long another machine may take to answer."""
POLL_GRACE_SECONDS: Final = 2.0
"""How much longer than asked for a long poll may take. It is repeated then, so that it need not be patient."""
REJOIN_HINT: Final = "`synapse fleet leave`, then join again with a new invitation, or with new credentials"
"""What helps a machine whose key is refused."""

A = TypeVar("A", bound=asks.AskAnswer)


class MachineSilent(OutcomeUnknown):
    """The machine was asked and did not answer: it may have done what was asked, or not."""

    def __init__(self, machine: str, why: str) -> None:
        SynapseError.__init__(
            self,
            f"the machine {machine} does not answer: {why}",
            hint="`synapse fleet status` shows the machines; try again, with the same message id: a message is never "
            "taken twice",
        )


def no_connection(why: str) -> LinkDown:
    """Returns the error for a machine that is cut off, with what helps."""
    hint = REJOIN_HINT if KEY_REFUSED in why else ""
    return LinkDown(CUT_OFF + why.removeprefix(NO_CONNECTION), hint=hint)


class FleetClient:
    """Sends asks to the links of other machines."""

    def __init__(self, me: str, bus: Bus, machines: Machines) -> None:
        self._me = me
        self._bus = bus
        self._machines = machines

    def require_connected(self) -> None:
        """Raises LinkDown without a connection."""
        if not self._bus.connected:
            raise no_connection(self._bus.problem)

    async def ask(self, machine: str, ask: asks.Ask, answer: type[A], *, seconds: float = 0.0) -> A:
        """Returns the answer of another machine. For a long poll, `seconds` is how long that one may wait.

        Raises:
            LinkDown, MachineAway: this machine or that one has no connection; nothing was done.
            MachineSilent: the machine did not answer; it may have done what was asked.
            SynapseError: the error that it answered with.
        """
        return await self._request(ask_subject(machine, self._me), machine, ask, answer, seconds)

    async def command(self, machine: str, ask: asks.Command, answer: type[A], *, seconds: float = 0.0) -> A:
        """Returns the answer to what a gateway asks for one of its callers; as `ask`."""
        return await self._request(command_subject(machine, self._me), machine, ask, answer, seconds)

    async def _request(
        self, subject: str, machine: str, ask: asks.Ask | asks.Command, answer: type[A], seconds: float
    ) -> A:
        self.require_connected()
        try:
            patience = seconds + POLL_GRACE_SECONDS if seconds else ANSWER_SECONDS
            body = await self._bus.request(subject, asks.encode_ask(ask), patience)
            got = asks.decode_answer(body)
        except NobodyThere:
            raise await self._machines.away(machine) from None
        except NotConnected as error:
            raise no_connection(str(error)) from error
        except BusError as error:
            raise MachineSilent(machine, str(error)) from error
        except UnreadableBody as error:
            raise MachineSilent(machine, "its answer cannot be read; update both to the same version") from error
        if isinstance(got, asks.AskFailed):
            raise got.as_error
        if not isinstance(got, answer):
            raise MachineSilent(machine, "it answered something else")
        return got


def asker(caller: Caller) -> str:
    """Returns who asks, for the other machine: a person only if the caller may make decisions that only people make."""
    return PERSON if caller.may_decide else caller.agent_id or f"{UNVERIFIED}process"


def is_loss(error: SynapseError) -> bool:
    """Decides whether an error says only that the other machine could not be asked now."""
    return isinstance(error, LinkDown | MachineAway | MachineSilent)


def task_in(read: asks.TaskRead) -> Task:
    """Returns the task of an answer. Raises SynapseError when it cannot be read."""
    return task_of_text(read.task)


def task_of_text(text: str) -> Task:
    """Returns a task as the store's codec writes it. Raises SynapseError when it cannot be read."""
    try:
        return read_task(text)
    except UNREADABLE as error:
        raise SynapseError(
            "the other machine sent a task that cannot be read", hint="update Synapse on both machines"
        ) from error


def events_in(task_id: str, text: str) -> list[TaskEvent]:
    """Returns the events of an answer. Raises SynapseError."""
    try:
        return read_events(TaskId(task_id), text)
    except UNREADABLE as error:
        raise SynapseError(
            "the other machine sent an event that cannot be read", hint="update Synapse on both machines"
        ) from error
