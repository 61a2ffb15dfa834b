"""The way to an external agent: which interface it is spoken to by, and what it is shown there."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any, Final, cast
from urllib.parse import urlsplit

from synapse.core.errors import ExternalAgentFailed, ExternalAgentUnreachable
from synapse.core.message import Message
from synapse.transports.errand import Answer, Call, Errand
from synapse.transports.external_card import A2A_0_3, REST, Interface
from synapse.transports.external_parts import respelt
from synapse.transports.external_report import json_object, result_of, rpc_result, sentence_of
from synapse.transports.external_words import Thread, cancel_call, get_call, send_call, subscribe_call

_ERROR_EVENT: Final = "error"

Said = dict[str, Any]
"""One thing that an agent said: a task, a message or an update."""


class Way:
    """How an agent is spoken to, in requests and answers. What it says comes in words that a Report understands."""

    def __init__(self, interface: Interface, credentials: Mapping[str, str]) -> None:
        self.interface = interface
        self._credentials = credentials

    def send(self, errand: Errand, message: Message, thread: Thread, *, waits: bool = True) -> Said:
        """Send a message, and return what is answered."""
        return self._asked(errand, send_call(self.interface, message, thread, waits=waits))

    def converse(self, errand: Errand, message: Message, thread: Thread) -> Generator[Said, None, None]:
        """Send a message, and yield what is said, as it comes."""
        return self._watched(errand, send_call(self.interface, message, thread))

    def follow(self, errand: Errand, task_id: str) -> Generator[Said, None, None]:
        return self._watched(errand, subscribe_call(self.interface, task_id))

    def look(self, errand: Errand, task_id: str) -> Said:
        return self._asked(errand, get_call(self.interface, task_id))

    def cancel(self, errand: Errand, task_id: str) -> Said:
        return self._asked(errand, cancel_call(self.interface, task_id))

    def _asked(self, errand: Errand, call: Call) -> Said:
        return self._plainly(result_of(errand.ask(self._with_credentials(call))))

    def _watched(self, errand: Errand, call: Call) -> Generator[Said, None, None]:
        """What a stream says, or the one answer that came in its place."""
        came = errand.follow(self._with_credentials(call))
        if isinstance(came, Answer):
            yield self._plainly(result_of(came))
            return
        heard = False
        for event in came:
            said = json_object(event.data)
            if heard and (event.name == _ERROR_EVENT or said.get("error")):
                # Not the agent's answer but the end of its server: the task may go on, and can be looked at.
                raise ExternalAgentUnreachable(f"its stream broke off{sentence_of(said)}")
            heard = True
            yield self._plainly(rpc_result(said))

    def _plainly(self, said: Said) -> Said:
        is_other = (self.interface.protocol, self.interface.binding) == (A2A_0_3, REST)
        return cast("Said", respelt(said)) if is_other else said

    def _with_credentials(self, call: Call) -> Call:
        return replace(call, headers={**call.headers, **self._credentials})


def shown_at(credentials: Mapping[str, str], added: str, used: str) -> Mapping[str, str]:
    """The credentials, if they may travel to `used`; they were given for the agent at `added`.

    Raises ExternalAgentFailed.
    """
    here, there = urlsplit(added), urlsplit(used)
    is_as_open = here.scheme == "http" and here.hostname == there.hostname
    if not credentials or there.scheme == "https" or is_as_open:
        return credentials
    raise ExternalAgentFailed(
        f"its card sends us to {used}, where its credentials would be seen by others", hint="it should offer https"
    )
