"""The headers that authenticate us at a webhook, and the part of its URL that may be shown."""

from __future__ import annotations

from typing import Any

import pytest

from synapse.core.push import PushConfig, chosen_scheme, proof_headers, shown_url


def config(**fields: Any) -> PushConfig:
    return PushConfig(url="https://example.com", **fields)


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({}, {}),
        ({"token": "t"}, {"X-A2A-Notification-Token": "t"}),
        ({"scheme": "bearer", "credentials": "c"}, {"Authorization": "Bearer c"}),
        ({"scheme": "Bearer", "credentials": "c"}, {"Authorization": "Bearer c"}),
        ({"scheme": "basic", "credentials": "ada:pw"}, {"Authorization": "Basic YWRhOnB3"}),
        ({"scheme": "Basic", "credentials": "YWRhOnB3"}, {"Authorization": "Basic YWRhOnB3"}),
        ({"scheme": "api-key", "credentials": "k"}, {"X-API-Key": "k"}),
        ({"scheme": "ApiKey", "credentials": "k"}, {"X-API-Key": "k"}),
        ({"scheme": "X-API-Key", "credentials": "k"}, {"X-API-Key": "k"}),
        ({"scheme": "Hmac", "credentials": "v1=x"}, {"Authorization": "Hmac v1=x"}),
        ({"scheme": "bearer"}, {}),
        ({"credentials": "c"}, {}),
        (
            {"token": "t", "scheme": "bearer", "credentials": "c"},
            {"X-A2A-Notification-Token": "t", "Authorization": "Bearer c"},
        ),
    ],
)
def test_the_headers_follow_the_scheme(fields: dict[str, str], headers: dict[str, str]) -> None:
    assert dict(proof_headers(config(**fields))) == headers


def test_the_first_known_scheme_is_chosen() -> None:
    assert chosen_scheme(["Digest", "API-KEY", "bearer"]) == "API-KEY"
    assert chosen_scheme(["Digest", "Hmac"]) == "Digest"
    assert chosen_scheme([]) == ""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.com", "https://example.com"),
        ("https://example.com:8443/hook", "https://example.com:8443/hook"),
        ("https://example.com/hook?key=secret", "https://example.com/hook?…"),
        ("https://example.com/services/T00000000/abcdefghijklmnopqrstuvwx", "https://example.com/services/T00000000/…"),
        ("https://ada:secret@example.com/hook", "https://example.com/hook"),
    ],
)
def test_a_shown_url_has_no_possible_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_a_configuration_does_not_show_its_secrets_by_accident() -> None:
    secret = PushConfig(id="c", url="https://example.com/s3cret", token="s3cret", credentials="s3cret")

    assert "s3cret" not in repr(secret)
