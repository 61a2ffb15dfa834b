"""What the headers of a request say about its message: its trace, and whether to keep it for a machine that is away.

The W3C trace context comes with a request, is stored with its task, and goes unchanged to webhooks and external agents.
Synapse records no spans of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from synapse.core.message import Json
from synapse.core.requests import ForAgent, Request, SendAndFollow, SendAndWait, SendMessage

AnyRequest = TypeVar("AnyRequest", bound=Request[object])

TRACE: Final = "trace"
"""The key of the trace in a task's metadata."""
PARENT: Final = "traceparent"
STATE: Final = "tracestate"
# A later version of the format may append fields after the flags.
_PARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[\x21-\x7e]{1,64})?"
)
_QUEUE: Final = b"synapse-queue"
_STATE: Final = re.compile(r"[\x20-\x7e]{1,512}")


def traced(request: AnyRequest, headers: Iterable[tuple[bytes, bytes]]) -> AnyRequest:
    """Returns the request; adds the trace in `headers` if the request opens a task. Ignores an invalid trace.

    With the header `Synapse-Queue: true`, a message to an agent on another machine is kept while that is away.
    """
    given: dict[str, str] = {}
    # Hot path: nearly every request comes here, and few have a trace.
    for name, value in headers:
        if name == b"traceparent" or name == b"tracestate":  # noqa: PLR1714 - a set costs more than two words
            given[name.decode("ascii")] = value.decode("latin-1")
        elif name == _QUEUE and value.lower() == b"true" and isinstance(request, ForAgent):
            request = replace(request, queue=True)
    trace = _checked(given) if given else None
    return cast("AnyRequest", _with_trace(request, trace)) if trace else request


def trace_headers(metadata: Json) -> list[tuple[str, str]]:
    """Returns the headers that propagate a task's trace; none if it has no trace."""
    kept = metadata.get(TRACE)
    if not isinstance(kept, Mapping):
        return []
    # A local sender may have put any value there.
    return list(_checked(cast("Mapping[str, Any]", kept)).items())


def _with_trace(request: Request[object], trace: dict[str, str]) -> Request[object]:
    """Returns the request with the trace in its message's task metadata, or unchanged if it sends no message."""
    match request:
        case ForAgent(request=inner):
            return replace(request, request=_with_trace(inner, trace))
        case SendMessage():
            return _traced_message(request, trace)
        case SendAndWait(send):
            return SendAndWait(_traced_message(send, trace))
        case SendAndFollow(send):
            return SendAndFollow(_traced_message(send, trace))
        case _:
            return request


def _traced_message(send: SendMessage, trace: dict[str, str]) -> SendMessage:
    return replace(send, metadata={**send.metadata, TRACE: trace})


def _checked(given: Mapping[str, Any]) -> dict[str, str]:
    """Returns the valid ones of both values; a tracestate is valid only with a traceparent."""
    parent, state = given.get(PARENT), given.get(STATE)
    if not isinstance(parent, str) or not _PARENT.fullmatch(parent):
        return {}
    trace = {PARENT: parent}
    if isinstance(state, str) and _STATE.fullmatch(state):
        trace[STATE] = state
    return trace
