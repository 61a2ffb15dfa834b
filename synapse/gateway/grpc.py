"""gRPC at a gateway: its port, who is let in, and the agents that are named by their tenant."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from synapse.auth.gateway import GatewayAuth
from synapse.auth.settings import AccessSettings
from synapse.config.process import open_file_limit
from synapse.core.caller import Caller
from synapse.dialects.dialect import Dialect
from synapse.dialects.paths import A2A_V0_3, A2A_V1
from synapse.gateway.config import GRPC_PORT, GatewayConfig
from synapse.gateway.routes import MOUNT
from synapse.server.peer import UNKNOWN_PEER, Peer, owner_of

if TYPE_CHECKING:
    from synapse.core.service import Handler
    from synapse.server.grpc_server import GrpcHeaders, GrpcServer

_VERBOSITY: Final = "GRPC_VERBOSITY"
_PEER: Final = re.compile(r"ipv[46]:\[?(?P<host>[^\]]+?)\]?:(?P<port>\d+)")


class GatewayGrpc:
    """The gRPC server of a gateway. The constructor binds its port, and has to run in the event loop."""

    def __init__(  # noqa: PLR0913 - the service, its limits, and who may call it
        self,
        config: GatewayConfig,
        access: AccessSettings,
        *,
        service: Handler,
        auth: GatewayAuth,
        admitted: Callable[[Caller | Awaitable[Caller]], Caller | Awaitable[Caller]] = lambda caller: caller,
        public_url: str,
        max_message_bytes: int,
    ) -> None:
        """`admitted` runs between authentication and the request. Raises PortTaken."""
        self._auth = auth
        self._admitted = admitted
        self._host = "127.0.0.1" if config.host == "localhost" else config.host
        with _silenced():
            from synapse.server.grpc_server import GrpcLimits, GrpcServer  # noqa: PLC0415 - a tenth of a second

            self.server: GrpcServer = GrpcServer(
                service,
                admit=self._admit,
                default_agent=config.default_agent,
                limits=GrpcLimits(max_message_bytes=max_message_bytes, max_connections=max(4, open_file_limit() // 4)),
            )
        # `--port 0`, any free port, applies to gRPC too.
        wanted = 0 if (config.port, config.grpc_port) == (0, GRPC_PORT) else config.grpc_port
        self.port = self.server.bind(self._host, wanted, tls=_key_pair(access))
        self.url = f"{urlsplit(public_url).hostname}:{self.port}"
        """Its address for clients: A2A 1.0.1 wants host and port, without a scheme."""

    def offer(self, dialects: Mapping[str, Dialect]) -> None:
        """Serves the dialects that gRPC defines."""
        from synapse.server.grpc_methods import current_service, former_service  # noqa: PLC0415 - see above

        self.server.offer(current_service(dialects[A2A_V1]), former_service(dialects[A2A_V0_3], MOUNT))

    def _admit(self, headers: GrpcHeaders, path: str, peer: str) -> Caller | Awaitable[Caller]:
        """Applies the rules of HTTP. gRPC does not expose the connection, so the two addresses identify its owner."""
        host, port = _address(peer)
        owner = UNKNOWN_PEER
        if host == self._host and ":" not in host:
            owner = Peer(via_socket=False, uid=owner_of((host, port), (self._host, self.port)))
        return self._admitted(self._auth.admit_headers(headers, path=path, peer=host, owner=owner))


@contextmanager
def _silenced() -> Generator[None]:
    """Silences gRPC, which writes lines to stderr, such as one for each agent that the gateway starts.

    It reads the setting only from the environment, and only when it is loaded. Agents that the gateway starts later
    must not inherit the setting.
    """
    is_unset = _VERBOSITY not in os.environ
    if is_unset:
        os.environ[_VERBOSITY] = "NONE"
    try:
        yield
    finally:
        if is_unset:
            del os.environ[_VERBOSITY]


def _address(peer: str) -> tuple[str, int]:
    """Parses `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`."""
    found = _PEER.fullmatch(unquote(peer))
    return (found["host"], int(found["port"])) if found else (peer, 0)


def _key_pair(access: AccessSettings) -> tuple[bytes, bytes] | None:
    """Returns the key and the certificate, which `tls_context` has checked for HTTP."""
    if access.tls_cert is None or access.tls_key is None:
        return None
    return access.tls_key.read_bytes(), access.tls_cert.read_bytes()
