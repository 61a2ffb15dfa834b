"""The certificate that a gateway shows: read at its start, with sentences for what is wrong with it."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path
from typing import NoReturn

from synapse.core.errors import InvalidSettings


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the context of a server, TLS 1.2 or newer.

    Raises:
        InvalidSettings: a file cannot be read, is not what it should be, does not fit the other, or is open to all.
    """
    for path in (certificate, key):
        _check_readable(path)
    if key.stat().st_mode & stat.S_IROTH:
        raise InvalidSettings(f"everybody can read the private key {key}", hint=f"chmod 600 {key}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a password of ours OpenSSL would ask for one on the terminal, and wait.
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        raise InvalidSettings(
            f"{certificate} and {key} are no certificate and its key: {error.reason or error}",
            hint="both in PEM; the certificate first, then those that vouch for it",
        ) from error
    return context


def _check_readable(path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}") from error


def _no_password() -> NoReturn:
    raise InvalidSettings(
        "the private key is locked with a password", hint="give one that is not, in a file of mode 600"
    )
