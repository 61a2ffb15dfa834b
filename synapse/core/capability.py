"""What A2A lets an agent do without: streams and push notifications. One that lacks them says so in its card, and what
would need them is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from synapse.core.errors import UnsupportedOperation
from synapse.core.requests import (
    DeletePushConfig,
    FollowTask,
    GetPushConfig,
    ListPushConfigs,
    Request,
    SendAndFollow,
    SendAndWait,
    SendMessage,
    SetPushConfig,
    SubscribeTask,
)
from synapse.core.wire_errors import PushNotSupported

STREAMING: Final = "streaming"
PUSH: Final = "pushNotifications"
CAPABILITIES: Final = (STREAMING, PUSH)
"""In the words of A2A's cards."""

_STREAMS: Final = (SendAndFollow, FollowTask, SubscribeTask)
_PUSHES: Final = (SetPushConfig, GetPushConfig, ListPushConfigs, DeletePushConfig)


def lacking(*, streaming: bool, push_notifications: bool) -> tuple[str, ...]:
    """Return what an agent with these switches lacks."""
    switches = ((STREAMING, streaming), (PUSH, push_notifications))
    return tuple(capability for capability, is_on in switches if not is_on)


def check_capable(lacks: Collection[str], request: Request) -> None:
    """Raise UnsupportedOperation or PushNotSupported when an agent that lacks these cannot do what is asked."""
    if not lacks:
        return
    if STREAMING in lacks and isinstance(request, _STREAMS):
        raise UnsupportedOperation("this agent does not stream", hint="send the message, and read its task")
    if PUSH in lacks and (isinstance(request, _PUSHES) or _names_webhook(request)):
        raise PushNotSupported(hint="follow the task, or read it from time to time")


def _names_webhook(request: Request) -> bool:
    send = request.send if isinstance(request, SendAndWait | SendAndFollow) else request
    return isinstance(send, SendMessage) and send.push is not None
