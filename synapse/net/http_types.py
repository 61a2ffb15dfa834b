"""The requests, responses and errors of `HttpClient`.

A module of its own, because both `net.http` and `net.http_connection`, which `net.http` imports late, need them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Reason(Enum):
    """Why a request got no response, or only part of one."""

    BAD_REQUEST = "the request cannot be written as HTTP"
    NAME_INVALID = "the host name is not a name"
    NAME_UNKNOWN = "the host name cannot be resolved"
    REFUSED = "nothing listens there"
    CONNECT_TIMEOUT = "the connection was not accepted in time"
    CERTIFICATE = "the certificate is not accepted"
    NO_TLS = "the server does not speak TLS"
    UNREACHABLE = "the connection failed"
    CLOSED = "the server closed the connection without an answer"
    NOT_HTTP = "the answer is not HTTP"
    HEAD_TOO_LARGE = "the head of the answer is too long"
    BODY_TOO_LARGE = "the body of the answer is too long"
    BROKEN_OFF = "the answer broke off"
    TIMED_OUT = "the deadline passed"


class HttpFailed(OSError):
    """A request failed.

    `detail` is the message of the system or of TLS. `sent` is False if the server cannot have seen the request.
    """

    def __init__(self, reason: Reason, detail: str = "", *, sent: bool = False) -> None:
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)
        self.reason = reason
        self.detail = detail
        self.sent = sent


class HttpTimedOut(HttpFailed, TimeoutError):
    """The deadline of a request passed."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__(Reason.TIMED_OUT, sent=sent)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request. The client adds Host, Content-Length, Connection and Accept-Encoding."""

    method: str
    url: str
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)
    body: bytes | None = field(default=None, repr=False)


class HttpAnswer(NamedTuple):
    """A whole response, of any status. `location` is the target of a redirect, else empty."""

    status: int
    body: bytes
    location: str = ""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300
