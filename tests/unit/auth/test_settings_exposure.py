"""Settings that a gateway refuses to start with."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.auth.settings import AccessSettings, check_exposure
from synapse.core.errors import InvalidSettings

PEM = Path("x.pem")
LOOPBACK = ["127.0.0.1", "localhost", "::1", "[::1]", "127.1.2.3"]
OPEN = ["0.0.0.0", "::", "192.0.2.1", "gateway.example", "localhost.example", ""]


@pytest.mark.parametrize("host", LOOPBACK)
@pytest.mark.parametrize("access", [AccessSettings(), AccessSettings(no_auth=True)], ids=["auth", "no-auth"])
def test_a_gateway_on_loopback_needs_neither_tls_nor_authentication(host: str, access: AccessSettings) -> None:
    check_exposure(host, access)


@pytest.mark.parametrize("host", OPEN)
def test_the_network_needs_tls_or_a_proxy_that_has_it(host: str) -> None:
    with pytest.raises(InvalidSettings, match="without TLS"):
        check_exposure(host, AccessSettings())

    check_exposure(host, AccessSettings(behind_proxy=True))
    check_exposure(host, AccessSettings(tls_cert=PEM, tls_key=PEM))


@pytest.mark.parametrize("host", OPEN)
def test_the_network_needs_authentication(host: str) -> None:
    with pytest.raises(InvalidSettings, match="without authentication") as refused:
        check_exposure(host, AccessSettings(no_auth=True, tls_cert=PEM, tls_key=PEM, behind_proxy=True))

    assert "synapse keys create" in refused.value.hint


@pytest.mark.parametrize("access", [AccessSettings(tls_cert=PEM), AccessSettings(tls_key=PEM)])
def test_tls_needs_both_certificate_and_key(access: AccessSettings) -> None:
    with pytest.raises(InvalidSettings, match="both"):
        check_exposure("127.0.0.1", access)
