"""Which addresses a webhook may have, in all notations of a refused address."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from synapse.core.errors import InvalidField
from synapse.net.address_guard import Target, parse_target, refusal, refuse

ALLOWABLE = [
    "127.0.0.1",
    "127.255.255.254",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "100.127.255.255",
    "::1",
    "fc00::1",
    "fd12:3456::1",
    "fec0::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:0:10.0.0.1",
    "::10.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::192.168.0.1",
    "64:ff9b:1::8.8.8.8",
    "2002:7f00:1::",
    "2002:a00:1::1",
]
NEVER = [
    "0.0.0.0",
    "0.1.2.3",
    "169.254.169.254",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "fe80::1",
    "fe80::a9fe:a9fe",
    "ff02::1",
    "2001::1",
    "2001:db8::1",
    "3fff::1",
    "4000::1",
    "100::1",
    "5f00::1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::",
    "2002:e000:1::",
]
GLOBAL = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1"]
HOLDERS = ["::ffff:1.1.1.1", "64:ff9b::8.8.8.8", "2002:101:101::1"]


@pytest.mark.parametrize("address", [*ALLOWABLE, *NEVER])
def test_addresses_that_only_this_network_reaches_are_refused(address: str) -> None:
    assert refusal(ip_address(address), allow_private=False)


@pytest.mark.parametrize("address", [*GLOBAL, *HOLDERS])
def test_public_addresses_are_allowed(address: str) -> None:
    assert refusal(ip_address(address), allow_private=False) == ""


@pytest.mark.parametrize("address", ALLOWABLE)
def test_the_switch_allows_private_and_loopback_addresses(address: str) -> None:
    assert refusal(ip_address(address), allow_private=True) == ""


@pytest.mark.parametrize("address", NEVER)
def test_addresses_that_no_webhook_can_have_are_refused_with_the_switch_too(address: str) -> None:
    assert refusal(ip_address(address), allow_private=True)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://example.com", Target(scheme="https", host="example.com", port=443, path="/")),
        ("HTTP://Example.COM:8080/a?b=c#d", Target(scheme="http", host="example.com", port=8080, path="/a?b=c")),
        (
            "https://xn--bcher-kva.example./x",
            Target(scheme="https", host="xn--bcher-kva.example.", port=443, path="/x"),
        ),
        ("http://127.0.0.1/", Target(scheme="http", host="127.0.0.1", port=80, path="/")),
        ("http://[::1]:99/", Target(scheme="http", host="::1", port=99, path="/")),
        ("http://[0:0::FFFF:7f00:1]/", Target(scheme="http", host="::ffff:7f00:1", port=80, path="/")),
        ("https://a_b.example/", Target(scheme="https", host="a_b.example", port=443, path="/")),
    ],
)
def test_an_address_of_the_web_is_understood(url: str, target: Target) -> None:
    assert parse_target(url) == target


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/hook",
        "//example.com",
        "ftp://example.com",
        "file:///etc/passwd",
        "gopher://example.com",
        "javascript:alert(1)",
        "https://",
        "https:///path",
        "https://user@example.com",
        "https://user:pass@example.com",
        "https://example.com:pass@127.0.0.1/",
        "https://example.com\\@127.0.0.1/",
        "https://@example.com/",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://example.com:port/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.1/",
        "http://127.0.0.01/",
        "http://127.0.0.1./",
        "http://1.2.3.4.5/",
        "http://256.1.1.1/",
        "http://[fe80::1%25eth0]/",
        "http://[::1/",
        "http://[::zz]/",
        "http://[v1.x]/",
        "http://127%2e0.0.1/",
        "http://exa mple.com/",
        "http://example.com/a b",
        "http://example.com/\r\nX-Evil: 1",
        "http://example.com/\x00",
        "http://\N{CIRCLED LATIN SMALL LETTER L}ocalhost/",
        "http://localhost\N{IDEOGRAPHIC FULL STOP}example/",
        "http://-bad-.example-/",
        "https://" + "a" * 260 + ".example/",
        "https://example.com/" + "a" * 2048,
    ],
)
def test_a_url_that_is_not_plain_is_refused(url: str) -> None:
    with pytest.raises(InvalidField) as refused:
        parse_target(url)

    assert refused.value.field == "url"


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("https://example.com", "example.com"),
        ("https://example.com:443", "example.com"),
        ("https://example.com:80", "example.com:80"),
        ("http://[::1]:8080", "[::1]:8080"),
        ("http://[::1]", "[::1]"),
    ],
)
def test_the_host_header_names_the_port_only_when_it_is_not_the_usual_one(url: str, authority: str) -> None:
    assert parse_target(url).authority == authority


def test_a_refusal_has_a_hint_where_a_setting_would_allow_the_address() -> None:
    with pytest.raises(InvalidField) as refused:
        refuse("localhost", ip_address("127.0.0.1"), allow_private=False)
    assert "'localhost' leads to a loopback address" in str(refused.value)
    assert "127.0.0.1" not in f"{refused.value} {refused.value.hint}"
    assert "allow_private_webhooks" in refused.value.hint

    with pytest.raises(InvalidField) as refused:
        refuse("169.254.169.254", ip_address("169.254.169.254"), allow_private=False)
    assert refused.value.hint == ""
