"""Which Host and Origin headers a gateway accepts."""

from __future__ import annotations

import pytest

from synapse.core.errors import ForeignOrigin
from synapse.server.middleware import WebNames, hosts_of


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("https://gw.example", {"gw.example", "gw.example:443"}),
        ("https://gw.example:443/base", {"gw.example", "gw.example:443"}),
        ("http://gw.example:8000", {"gw.example:8000"}),
        ("http://[::1]", {"[::1]", "[::1]:80"}),
        ("https://GW.example", {"gw.example", "gw.example:443"}),
    ],
)
def test_the_hosts_of_an_address(url: str, hosts: set[str]) -> None:
    assert hosts_of(url) == hosts


def test_the_host_header_must_name_this_server_once() -> None:
    names = WebNames(["gw.example"])

    names.check_host([(b"host", b"GW.example")])
    for headers in ([], [(b"host", b"other")], [(b"host", b"gw.example"), (b"host", b"gw.example")]):
        with pytest.raises(ForeignOrigin, match="Host"):
            names.check_host(headers)


def test_a_gateway_without_known_names_accepts_any_host() -> None:
    names = WebNames(None)

    names.check_host([(b"host", b"whatever")])
    names.check_origin([(b"host", b"whatever:8000"), (b"origin", b"http://whatever:8000")])
    with pytest.raises(ForeignOrigin):
        names.check_origin([(b"host", b"whatever:8000"), (b"origin", b"http://other")])
    with pytest.raises(ForeignOrigin):
        names.check_origin([(b"origin", b"null")])


def test_own_pages_and_listed_origins_are_accepted() -> None:
    names = WebNames(["gw.example"], origins=["https://App.example"])

    for origin in (b"https://gw.example", b"http://gw.example", b"https://app.example"):
        names.check_origin([(b"origin", origin)])
    names.check_origin([])
    for origin in (b"https://gw.example.evil", b"null", b""):
        with pytest.raises(ForeignOrigin):
            names.check_origin([(b"origin", origin)])


def test_the_own_page_comes_from_the_address_that_it_calls_or_from_the_public_one() -> None:
    names = WebNames(["gw.example", "localhost:8000"], own=["https://Public.example"], origins=["https://app.example"])

    def headers(host: bytes, origin: bytes) -> list[tuple[bytes, bytes]]:
        return [(b"host", host), (b"origin", origin)]

    names.check_own_page([(b"host", b"gw.example")], needs_origin=False)
    for origin in (b"http://gw.example", b"https://GW.example", b"https://public.example"):
        names.check_own_page(headers(b"gw.example", origin), needs_origin=True)
    for origin in (b"http://localhost:8000", b"https://app.example", b"null", b"", b"http://gw.example.evil"):
        with pytest.raises(ForeignOrigin):
            names.check_own_page(headers(b"gw.example", origin), needs_origin=False)
    with pytest.raises(ForeignOrigin, match="Host"):
        names.check_own_page(headers(b"public.example", b"https://public.example"), needs_origin=True)


def test_the_own_page_of_a_gateway_without_known_names_has_the_name_that_it_calls() -> None:
    names = WebNames(None)

    names.check_own_page([(b"host", b"box:8000"), (b"origin", b"https://box:8000")], needs_origin=True)
    for headers in ([(b"host", b"box:8000")], [(b"host", b"box:8000"), (b"origin", b"https://box:9000")]):
        with pytest.raises(ForeignOrigin):
            names.check_own_page(headers, needs_origin=True)
