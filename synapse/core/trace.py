"""W3C trace context: whose work a task is part of. It comes with a request, is kept with the task, and goes on from
there to webhooks and to agents elsewhere, unchanged: we measure no spans of our own.
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
"""The key of a task's metadata."""
PARENT: Final = "traceparent"
STATE: Final = "tracestate"
# A later version may have more behind the flags.
_PARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[\x21-\x7e]{1,64})?"
)
_STATE: Final = re.compile(r"[\x20-\x7e]{1,512}")


def traced(request: AnyRequest, headers: Iterable[tuple[bytes, bytes]]) -> AnyRequest:
    """Return the request, with the trace that its headers name if it makes a task. Leaves out what is no trace."""
    trace = _trace_in(headers)
    return cast("AnyRequest", _with_trace(request, trace)) if trace else request


def trace_headers(metadata: Json) -> list[tuple[str, str]]:
    """The headers that hand a task's trace on; none when it has none."""
    kept = metadata.get(TRACE)
    if not isinstance(kept, Mapping):
        return []
    # A task that was made locally may have anything there.
    return list(_checked(cast("Mapping[str, Any]", kept)).items())


def _trace_in(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    given: dict[str, str] = {}
    # Nearly every request has neither, and nearly every request comes by here.
    for name, value in headers:
        if name == b"traceparent" or name == b"tracestate":  # noqa: PLR1714 - a set costs more than two words
            given[name.decode("ascii")] = value.decode("latin-1")
    return _checked(given) if given else {}


def _with_trace(request: Request[object], trace: dict[str, str]) -> Request[object]:
    """Return a request of the same class."""
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
    """The two values as far as they are valid; a state means nothing without its parent."""
    parent, state = given.get(PARENT), given.get(STATE)
    if not isinstance(parent, str) or not _PARENT.fullmatch(parent):
        return {}
    trace = {PARENT: parent}
    if isinstance(state, str) and _STATE.fullmatch(state):
        trace[STATE] = state
    return trace
