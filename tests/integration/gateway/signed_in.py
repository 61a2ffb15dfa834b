"""A browser that a person has signed in at a real gateway, as far as HTTP shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.conformance.real_gateway import RunningGateway
from tests.conformance.wire_client import Reply, WireClient


@dataclass(frozen=True)
class SignedIn:
    """The two secrets of a session, and requests of the gateway's page with them."""

    gateway: RunningGateway
    cookie: str
    token: str
    session: dict[str, Any]

    @property
    def origin(self) -> str:
        return origin_of(self.gateway)

    def ask(self, method: str, path: str, body: object = None, **changed: str) -> Reply:
        """Asks as the page does; keywords are headers instead of the usual ones, and an empty one is left out."""
        usual = {
            "Host": self.origin.removeprefix("http://"),
            "Origin": "" if method == "GET" else self.origin,
            "Cookie": self.cookie,
            "X-Synapse-Token": self.token,
            "Sec-Fetch-Site": "same-origin",
        }
        given = {**usual, **{name.replace("_", "-"): value for name, value in changed.items()}}
        return WireClient(self.gateway.entry.port).request(
            method, path, body, {name: value for name, value in given.items() if value}
        )


def origin_of(gateway: RunningGateway) -> str:
    return f"http://127.0.0.1:{gateway.entry.port}"


def new_code(gateway: RunningGateway, *actions: str) -> str:
    """Returns the code of a new link, which this process gets as a person's."""
    socket = WireClient(gateway.entry.port, gateway.entry.socket)
    made = socket.request("POST", "/dashboard/links", {"actions": actions} if actions else {})
    assert made.status == 200, made.body
    url: str = made.json["url"]
    assert url.startswith(f"{origin_of(gateway)}/#code=")
    return url.partition("#code=")[2]


def open_session(gateway: RunningGateway, code: str, **headers: str) -> Reply:
    """Opens a session with a code, as the page does."""
    given = {"Origin": origin_of(gateway), "Host": origin_of(gateway).removeprefix("http://")}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return WireClient(gateway.entry.port).request("POST", "/dashboard/session", {"code": code}, {**given, **named})


def sign_in(gateway: RunningGateway, *actions: str) -> SignedIn:
    """Returns a browser that a person has signed in, with all actions or with these."""
    opened = open_session(gateway, new_code(gateway, *actions))
    assert opened.status == 200, opened.body
    cookie = opened.headers["set-cookie"].partition(";")[0]
    return SignedIn(gateway, cookie, opened.json["token"], opened.json["session"])
