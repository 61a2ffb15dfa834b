"""Reads the access settings of a gateway: `[auth]`, `[rate_limit]`, `[cors]`, `[tls]` and `behind_proxy`.

The file holds no secrets: it names the environment variable of one. A gateway that is open to the network without TLS
or without authentication does not start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from synapse.auth.api_keys import checked_actions
from synapse.auth.jwt import FAMILIES, SYMMETRIC, TokenRules
from synapse.core.address import nearest
from synapse.core.caller import ACTIONS
from synapse.core.errors import InvalidRequest, InvalidSettings
from synapse.core.loopback import is_loopback

_Number = TypeVar("_Number", int, float)

ACCESS_KEYS: Final = ("auth", "rate_limit", "cors", "tls", "behind_proxy")
"""The keys of a gateway's configuration that this module reads."""
NOT_IN_FILES: Final = frozenset({"no_auth"})
"""Switches that open the gateway: only for the command line, where they are seen."""
HINT: Final = "docs/howto/secure-the-gateway.md explains every key"
DEFAULT_SCOPES: Final = {f"synapse:{action}": frozenset({action}) for action in ACTIONS}

_ASYMMETRIC: Final = frozenset[str]().union(*FAMILIES.values())
# As many bytes as the hash has: a shorter secret is easier to guess than the signature.
_SECRET_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtSettings:
    """Which tokens are accepted, and where their keys are: a URL, a file, or a secret."""

    rules: TokenRules
    jwks_url: str = ""
    jwks_file: Path | None = None
    secret: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """All settings about access; the defaults are those of a gateway without a configuration."""

    no_auth: bool = False
    api_keys: bool = True
    jwt: JwtSettings | None = None
    custom: str = ""
    """A custom authenticator, as `package.module:callable`."""
    custom_description: str = "Credentials of this gateway's own kind"
    requests_per_minute: int = 6000
    burst: int = 600
    failures_per_minute: int = 30
    open_streams: int = 1000
    stored_bytes_per_key: int = 256 * 1024**2
    """The quota of one key, or of one subject of tokens; 0 means no limit."""
    origins: tuple[str, ...] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False


class _Jwt(msgspec.Struct, forbid_unknown_fields=True):
    issuer: str
    audience: str
    jwks_url: str = ""
    jwks_file: str = ""
    secret_env: str = ""
    algorithms: list[str] = []
    leeway: float = 30.0
    scopes: dict[str, str | list[str]] = {}
    agents_claim: str = ""


class _Auth(msgspec.Struct, forbid_unknown_fields=True):
    api_keys: bool = True
    custom: str = ""
    custom_description: str = AccessSettings().custom_description
    jwt: _Jwt | None = None


class _RateLimit(msgspec.Struct, forbid_unknown_fields=True):
    requests_per_minute: int = AccessSettings().requests_per_minute
    burst: int = AccessSettings().burst
    failures_per_minute: int = AccessSettings().failures_per_minute
    open_streams: int = AccessSettings().open_streams
    stored_bytes_per_key: int = AccessSettings().stored_bytes_per_key


class _Cors(msgspec.Struct, forbid_unknown_fields=True):
    origins: list[str] = []


class _Tls(msgspec.Struct, forbid_unknown_fields=True):
    cert: str
    key: str


class _Access(msgspec.Struct):
    auth: _Auth = msgspec.field(default_factory=_Auth)
    rate_limit: _RateLimit = msgspec.field(default_factory=_RateLimit)
    cors: _Cors = msgspec.field(default_factory=_Cors)
    tls: _Tls | None = None
    behind_proxy: bool = False


_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)` - at `\$\.([a-z_.]+)`")
"""How msgspec reports a key that a table does not have."""
_TABLES: Final[Mapping[str, type[msgspec.Struct]]] = {
    "auth": _Auth,
    "auth.jwt": _Jwt,
    "rate_limit": _RateLimit,
    "cors": _Cors,
    "tls": _Tls,
}


def read_access(table: Mapping[str, Any], where: Path, environ: Mapping[str, str] | None = None) -> AccessSettings:
    """Reads the access settings of a configuration and ignores its other keys. Paths are relative to the file `where`.

    Raises:
        InvalidSettings: a setting is not valid, or would be unsafe.
    """
    try:
        access = msgspec.convert({key: table[key] for key in ACCESS_KEYS if key in table}, _Access)
        return AccessSettings(
            api_keys=access.auth.api_keys,
            jwt=_jwt(access.auth.jwt, where, os.environ if environ is None else environ) if access.auth.jwt else None,
            custom=_import_path(access.auth.custom),
            custom_description=access.auth.custom_description,
            requests_per_minute=_not_negative("rate_limit.requests_per_minute", access.rate_limit.requests_per_minute),
            burst=_not_negative("rate_limit.burst", access.rate_limit.burst),
            failures_per_minute=_not_negative("rate_limit.failures_per_minute", access.rate_limit.failures_per_minute),
            open_streams=_not_negative("rate_limit.open_streams", access.rate_limit.open_streams),
            stored_bytes_per_key=_not_negative(
                "rate_limit.stored_bytes_per_key", access.rate_limit.stored_bytes_per_key
            ),
            origins=tuple(_origin(origin) for origin in access.cors.origins),
            tls_cert=_beside(where, access.tls.cert) if access.tls else None,
            tls_key=_beside(where, access.tls.key) if access.tls else None,
            behind_proxy=access.behind_proxy,
        )
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN.fullmatch(str(error))
        if unknown is None:
            raise InvalidSettings(f"{where}: {error}", hint=HINT) from error
        key, name = unknown.groups()
        raise unknown_setting(key, f"{where}: [{name}]", _TABLES[name].__struct_fields__) from error
    except InvalidRequest as error:
        raise InvalidSettings(f"{where}: {error}", hint=error.hint or HINT) from error


def _jwt(given: _Jwt, where: Path, environ: Mapping[str, str]) -> JwtSettings:
    sources = [name for name in ("jwks_url", "jwks_file", "secret_env") if getattr(given, name)]
    if len(sources) != 1:
        raise InvalidRequest("auth.jwt needs exactly one of jwks_url, jwks_file and secret_env")
    if not given.issuer or not given.audience:
        raise InvalidRequest("auth.jwt.issuer and auth.jwt.audience must not be empty")
    shared = sources == ["secret_env"]
    algorithms = _algorithms(given.algorithms, shared=shared)
    return JwtSettings(
        rules=TokenRules(
            issuer=given.issuer,
            audience=given.audience,
            algorithms=algorithms,
            leeway=_not_negative("auth.jwt.leeway", given.leeway),
            actions={
                scope: checked_actions([actions] if isinstance(actions, str) else actions)
                for scope, actions in given.scopes.items()
            }
            or DEFAULT_SCOPES,
            agents_claim=given.agents_claim,
        ),
        jwks_url=_key_set_address(given.jwks_url),
        jwks_file=_beside(where, given.jwks_file) if given.jwks_file else None,
        secret=_secret(given.secret_env, algorithms, environ) if shared else b"",
    )


def _algorithms(given: list[str], *, shared: bool) -> frozenset[str]:
    """Returns the accepted algorithms, of one kind only: a public key must never serve as a shared secret."""
    possible = SYMMETRIC if shared else _ASYMMETRIC
    wanted = frozenset(given or (["HS256"] if shared else ["RS256", "ES256"]))
    if unfit := sorted(wanted - possible):
        raise InvalidRequest(
            f"auth.jwt.algorithms: {', '.join(unfit)} cannot be used here",
            hint="possible: " + ", ".join(sorted(possible)),
        )
    return wanted


def _secret(variable: str, algorithms: frozenset[str], environ: Mapping[str, str]) -> bytes:
    secret = environ.get(variable, "").encode("utf-8", "surrogateescape")
    needed = max(_SECRET_BYTES[algorithm] for algorithm in algorithms)
    if len(secret) < needed:
        raise InvalidRequest(
            f"the environment variable {variable} (auth.jwt.secret_env) must hold a secret of at least {needed} bytes",
            hint=f"set {variable} in the environment of the gateway",
        )
    return secret


def _key_set_address(url: str) -> str:
    place = urlsplit(url)
    plain = place.scheme == "http" and is_loopback(place.hostname or "")
    if url and not plain and (place.scheme != "https" or not place.hostname):
        raise InvalidRequest(
            "auth.jwt.jwks_url must begin with https://",
            hint="a third party that changes the keys on their way could admit any caller",
        )
    return url


def _import_path(path: str) -> str:
    module, colon, name = path.partition(":")
    if path and not (module and colon and name.isidentifier()):
        raise InvalidRequest("auth.custom must be written as package.module:callable")
    return path


def _origin(origin: str) -> str:
    place = urlsplit(origin)
    if (
        place.scheme not in ("http", "https")
        or not place.netloc
        or origin.rstrip("/") != f"{place.scheme}://{place.netloc}"
    ):
        raise InvalidRequest(
            f"cors.origins: {origin!r} is not an origin",
            hint="write it as https://app.example.com; `*` is not accepted",
        )
    return origin.rstrip("/")


def _not_negative(key: str, value: _Number) -> _Number:
    if not value >= 0:
        raise InvalidRequest(f"{key} must not be negative")
    return value


def _beside(where: Path, path: str) -> Path:
    return where.parent / Path(path).expanduser()


def unknown_setting(key: str, place: str, known: Collection[str]) -> InvalidSettings:
    """Returns the error for a key that a table of the configuration does not have."""
    if key in NOT_IN_FILES:
        hint = f"only the command line takes it: --{key.replace('_', '-')}"
    elif meant := nearest(key, list(known)):
        hint = f"did you mean '{meant}'?"
    else:
        hint = f"known here: {', '.join(sorted(known))}"
    return InvalidSettings(f"{place}: unknown setting '{key}'", hint=hint)


def check_exposure(host: str, access: AccessSettings) -> None:
    """Raises unless a gateway may listen at `host` with these settings.

    Raises:
        InvalidSettings: other machines could read its traffic, or use it without authentication.
    """
    if (access.tls_cert is None) != (access.tls_key is None):
        raise InvalidSettings(
            "TLS needs both the certificate and its private key", hint="give --tls-cert and --tls-key"
        )
    if is_loopback(host):
        return
    if access.no_auth:
        raise InvalidSettings(
            f"without authentication a gateway may serve only this machine, and {host} is open to others",
            hint="omit --no-auth and make a key (`synapse keys create NAME`), or use --host 127.0.0.1",
        )
    if access.tls_cert is None and not access.behind_proxy:
        raise InvalidSettings(
            f"{host} is open to other machines, which could read the traffic without TLS",
            hint="give --tls-cert and --tls-key, or --behind-proxy if a proxy in front terminates TLS",
        )
