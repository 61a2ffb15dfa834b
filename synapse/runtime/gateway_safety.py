"""What a gateway refuses to be started as: open to the network without TLS, or without authentication."""

from __future__ import annotations

from synapse.core.errors import InvalidSettings
from synapse.runtime.access_settings import AccessSettings
from synapse.runtime.loopback import is_loopback


def check_exposure(host: str, access: AccessSettings) -> None:
    """Return when a gateway may listen at `host` like this.

    Raises:
        InvalidSettings: others could read along, or get in.
    """
    if (access.tls_cert is None) != (access.tls_key is None):
        raise InvalidSettings(
            "TLS needs both the certificate and its private key", hint="give --tls-cert and --tls-key"
        )
    if is_loopback(host):
        return
    if access.no_auth:
        raise InvalidSettings(
            f"without authentication only this machine may be served, and {host} is open to others",
            hint="leave --no-auth out and make a key (`synapse keys create NAME`), or use --host 127.0.0.1",
        )
    if access.tls_cert is None and not access.behind_proxy:
        raise InvalidSettings(
            f"{host} is open to others, and without TLS they could read along",
            hint="give --tls-cert and --tls-key, or --behind-proxy if a proxy in front ends TLS",
        )
