"""Sends requests to one external agent, and turns failures into errors that say what to do."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from synapse.client.events import ServerEvent
from synapse.core.errors import ExternalAddressRefused, ExternalAgentFailed, ExternalAgentUnreachable, InvalidField
from synapse.net.http import HttpClient, HttpResponse
from synapse.net.http_types import HttpAnswer, HttpFailed, HttpRequest, HttpTimedOut, Reason

LARGEST_ANSWER: Final = 16 * 1024 * 1024
_EVENT_STREAM: Final = "text/event-stream"

_MEANINGS: Final[Mapping[Reason, tuple[type[ExternalAgentFailed], str, str]]] = {
    Reason.BAD_REQUEST: (ExternalAgentFailed, "the request to {place} cannot be sent as HTTP", "look at its headers"),
    Reason.NAME_UNKNOWN: (ExternalAgentUnreachable, "the host name of {place} is not known", ""),
    # A name that the DNS cannot hold: with an empty label, or one that is too long.
    Reason.NAME_INVALID: (ExternalAgentUnreachable, "the host name of {place} is not valid", ""),
    Reason.REFUSED: (ExternalAgentUnreachable, "nothing listens at {place}", "is it running, on that port?"),
    Reason.CONNECT_TIMEOUT: (ExternalAgentUnreachable, "{place} does not accept the connection", ""),
    Reason.CERTIFICATE: (ExternalAgentUnreachable, "the certificate of {place} is not accepted: {detail}", ""),
    Reason.NO_TLS: (ExternalAgentUnreachable, "{place} does not speak TLS", "perhaps it is http, not https?"),
    Reason.UNREACHABLE: (ExternalAgentUnreachable, "{place} cannot be reached: {detail}", ""),
    Reason.CLOSED: (ExternalAgentUnreachable, "{place} closed the connection without an answer", ""),
    Reason.BROKEN_OFF: (ExternalAgentFailed, "{place} broke off in the middle of its answer", ""),
    Reason.NOT_HTTP: (ExternalAgentFailed, "what listens at {place} does not speak HTTP", ""),
    Reason.HEAD_TOO_LARGE: (ExternalAgentFailed, "what listens at {place} does not speak HTTP", ""),
    Reason.BODY_TOO_LARGE: (ExternalAgentFailed, "its answer is larger than {limit} bytes", ""),
}


@dataclass(frozen=True, slots=True)
class Call:
    """A request to an external agent: a POST if it has a body, which is sent as JSON."""

    url: str
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class RemoteRequests:
    """Sends requests to an external agent, one after the other, with one deadline by the event loop's clock."""

    def __init__(self, client: HttpClient, deadline: float) -> None:
        self._client = client
        self._deadline = deadline
        self.has_sent = False
        """Whether a request was sent: from then on the agent may have taken it."""

    async def ask(self, call: Call) -> HttpAnswer:
        """Sends a request and returns the whole answer.

        Raises:
            ExternalAddressRefused: the address guard forbids the address.
            ExternalAgentUnreachable: the agent does not answer.
            ExternalAgentFailed: the answer is too large, or breaks off.
            TimeoutError: the deadline passed.
        """
        async with self._opened(call) as response:
            return await response.answer(LARGEST_ANSWER)

    async def follow(self, call: Call) -> AsyncGenerator[ServerEvent | HttpAnswer, None]:
        """Yields the events of a stream, or the whole answer if it is not a stream. Raises what `ask` raises."""
        async with self._opened(call) as response:
            if response.media_type != _EVENT_STREAM:
                yield await response.answer(LARGEST_ANSWER)
                return
            async with aclosing(response.events(LARGEST_ANSWER)) as events:
                async for event in events:
                    yield event

    @asynccontextmanager
    async def _opened(self, call: Call) -> AsyncGenerator[HttpResponse, None]:
        is_stream = False
        try:
            async with self._client.open(_request(call), deadline=self._deadline) as response:
                self.has_sent = True
                is_stream = response.media_type == _EVENT_STREAM
                yield response
        except InvalidField as refused:
            raise ExternalAddressRefused(refused.why, hint=refused.hint) from refused
        except HttpFailed as failed:
            self.has_sent = self.has_sent or failed.sent
            if isinstance(failed, HttpTimedOut):
                raise
            place = urlsplit(call.url)
            kind, sentence, hint = _MEANINGS[failed.reason]
            if is_stream and failed.reason is Reason.BODY_TOO_LARGE:
                sentence = "its stream is longer than {limit} bytes"
            text = sentence.format(place=f"{place.scheme}://{place.netloc}", detail=failed.detail, limit=LARGEST_ANSWER)
            raise kind(text, hint=hint) from failed


def _request(call: Call) -> HttpRequest:
    headers = {"Accept": "application/json", **call.headers}
    if call.body is None:
        return HttpRequest(method="GET", url=call.url, headers=tuple(headers.items()))
    headers = {"Content-Type": "application/json", **headers}
    return HttpRequest(method="POST", url=call.url, headers=tuple(headers.items()), body=json.dumps(call.body).encode())
