"""The server's side of MCP, without I/O: decides how to answer each JSON-RPC message, in both eras of the protocol.

    2024-11-05 … 2025-11-25   a session that begins with `initialize`
    2026-07-28                stateless: each request has its version and client in `params._meta`; `server/discover`

A request with a protocol version in its `_meta` belongs to the new era, any other to the old one. So a client may try
one era and then the other on the same connection, as some do.

    transport ── decoded JSON ──► Server.receive ──► Exchange ── calls ──► the transport runs them
        ▲                                              ▲                              │
        └──────────── exchange.reply, once complete ───┴──── exchange.finish(call, result)

`synapse mcp` must start quickly, so this module imports nothing heavy. The gateway uses it for each POST.
"""

from synapse.mcp.tools import Tool, ToolResult, WrongArguments, clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from synapse.mcp.tools import Call

    RequestId = str | int

LATEST_SESSION_VERSION = "2025-11-25"
SESSION_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", LATEST_SESSION_VERSION)
STATELESS_VERSION = "2026-07-28"
ASSUMED_VERSION = "2025-03-26"
"""The version of a client over HTTP that names none (2025-11-25, basic/transports, "Protocol Version Header")."""
BATCH_VERSIONS = ("2024-11-05", "2025-03-26")
"""JSON-RPC batches came with 2025-03-26, were allowed by the JSON-RPC of the version before, and were removed after."""
MOST_BATCHED = 50
MOST_MESSAGE_BYTES = 16 * 1024 * 1024
MOST_CLIENT_LETTERS = 100

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"

INITIALIZE = "initialize"
DISCOVER = "server/discover"
PING = "ping"
LIST_TOOLS = "tools/list"
CALL_TOOL = "tools/call"
CANCELLED = "notifications/cancelled"

_OK, _ACCEPTED, _BAD_REQUEST, _NOT_FOUND = 200, 202, 400, 404
_BROKEN = (PARSE_ERROR, INVALID_REQUEST, HEADER_MISMATCH, UNSUPPORTED_VERSION)


class Session:
    """What is known of a client: a stdio server keeps one for its whole life, an HTTP server makes one per POST."""

    __slots__ = ("client", "protocol")

    def __init__(self, protocol: str = "") -> None:
        self.protocol = protocol
        """The version that the last request used; empty before the first one."""
        self.client = ""
        """The client's name and version, as it says; empty if it says nothing."""


class HttpHeaders:
    """The headers of a POST that the protocol defines; None for each that is missing.

    The transport decodes the value of `Mcp-Name` and refuses a repeated header.
    """

    __slots__ = ("method", "name", "version")

    def __init__(self, version: "str | None" = None, method: "str | None" = None, name: "str | None" = None) -> None:
        self.version = version
        self.method = method
        self.name = name


class ToolCall:
    """A tool call that the transport has to run; it gives the result to `Exchange.finish`."""

    __slots__ = ("call", "id", "is_stateless", "progress_token", "tool")

    def __init__(
        self,
        request_id: "RequestId",
        tool: Tool,
        call: "Call",
        *,
        is_stateless: bool,
        progress_token: "RequestId | None",
    ) -> None:
        self.id = request_id
        self.tool = tool
        self.call = call
        self.is_stateless = is_stateless
        self.progress_token = progress_token

    def progress(self, step: int, message: str) -> "dict[str, Any] | None":
        """Returns the notification that the call goes on, or None if the client did not ask for any."""
        if self.progress_token is None:
            return None
        params = {"progressToken": self.progress_token, "progress": step, "message": clean(message)}
        return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


class Exchange:
    """What one message, or one batch, amounts to: the calls to run, and the reply once they are finished."""

    __slots__ = ("_is_batch", "_replies", "calls", "canceled", "is_stateless", "listed")

    def __init__(self, *, is_batch: bool = False) -> None:
        self._is_batch = is_batch
        self._replies: list[dict[str, Any]] = []
        self.calls: list[ToolCall] = []
        """The calls that are not finished yet."""
        self.canceled: list[RequestId] = []
        """The requests that the client cancels; the transport knows which of them still run."""
        self.listed = False
        """Whether the reply lists the tools."""
        self.is_stateless = False
        """Whether a request of the new era is in it."""

    @property
    def is_complete(self) -> bool:
        """Whether all calls are finished, so that `reply` is final."""
        return not self.calls

    @property
    def reply(self) -> "dict[str, Any] | list[dict[str, Any]] | None":
        """The JSON value to send, or None if nothing is to be answered."""
        if not self._replies:
            return None
        return self._replies if self._is_batch else self._replies[0]

    @property
    def http_status(self) -> int:
        """The status of an HTTP response with `reply` as its body."""
        if not self._replies:
            return _ACCEPTED
        code = self._replies[0].get("error", {}).get("code", 0)
        if self._is_batch or not code:
            return _OK
        if self.is_stateless:
            # 2026-07-28, basic/transports: 404 for an unknown method, 400 for every other error of the request.
            return _NOT_FOUND if code == METHOD_NOT_FOUND else _OK if code == INTERNAL_ERROR else _BAD_REQUEST
        return _BAD_REQUEST if code in _BROKEN else _OK

    def finish(self, call: ToolCall, result: "ToolResult | None") -> None:
        """Records the result of a call; None if the client canceled it: then it gets no answer."""
        self.calls.remove(call)
        if result is not None:
            fields = {"content": result.content(), "isError": result.is_error}
            self.add_result(call.id, fields, is_stateless=call.is_stateless)

    def add_result(self, request_id: "RequestId", fields: "Mapping[str, Any]", *, is_stateless: bool) -> None:
        """Adds the result of a request."""
        result = {"resultType": "complete", **fields} if is_stateless else dict(fields)
        self._replies.append({"jsonrpc": "2.0", "id": request_id, "result": result})

    def add_error(self, request_id: "RequestId | None", error: "ProtocolError") -> None:
        """Adds the error of a request; without an id if the request has none that can be read."""
        fields: dict[str, Any] = {"code": error.code, "message": clean(str(error))}
        if error.data is not None:
            fields["data"] = error.data
        self._replies.append({"jsonrpc": "2.0", "id": request_id, "error": fields})


class ProtocolError(Exception):
    """A request that is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: "dict[str, Any] | None" = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def refuse(code: int, message: str) -> Exchange:
    """Returns the exchange for bytes that are no message: too long (INVALID_REQUEST), or no JSON (PARSE_ERROR)."""
    exchange = Exchange()
    exchange.add_error(None, ProtocolError(code, message))
    return exchange


class Server:
    """Offers `tools` to clients of every version of the protocol."""

    def __init__(self, tools: "Sequence[Tool]", instructions: str, version: str) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._instructions = instructions
        self._info = {"name": "synapse", "title": "Synapse", "version": version}

    def receive(self, message: object, session: Session, headers: HttpHeaders | None = None) -> Exchange:
        """Decides about one decoded message or batch; `headers` if it came by HTTP."""
        if not isinstance(message, list):
            exchange = Exchange()
            self._receive_one(message, exchange, session, headers)
            return exchange
        batch: list[object] = message  # pyright: ignore[reportUnknownVariableType]  # the type inside JSON is unknown
        version = session.protocol or (headers.version if headers and headers.version else ASSUMED_VERSION)
        if version not in BATCH_VERSIONS:
            return refuse(INVALID_REQUEST, f"batches are not part of version {clean(version)[:20]}")
        if not 0 < len(batch) <= MOST_BATCHED:
            return refuse(INVALID_REQUEST, f"a batch has 1 to {MOST_BATCHED} messages")
        exchange = Exchange(is_batch=True)
        for item in batch:
            self._receive_one(item, exchange, session, headers)
        return exchange

    def _receive_one(self, message: object, exchange: Exchange, session: Session, headers: HttpHeaders | None) -> None:
        request_id: RequestId | None = None
        try:
            fields = _fields_of(message)
            request_id = fields["id"] if _is_id(fields.get("id")) else None
            method = _method_of(fields)
            if not method:
                return
            if "id" not in fields:
                _receive_notification(method, fields.get("params"), exchange)
                return
            params = _optional_object(fields, "params")
            self._receive_request(fields["id"], method, params, exchange, session, headers)
        except ProtocolError as error:
            exchange.add_error(request_id, error)

    def _receive_request(
        self,
        request_id: "RequestId",
        method: str,
        params: "dict[str, Any]",
        exchange: Exchange,
        session: Session,
        headers: HttpHeaders | None,
    ) -> None:
        meta = _optional_object(params, "_meta")
        # Stateless requests name their version in the body; over HTTP the header may betray one that forgot to.
        is_stateless = method != INITIALIZE and (
            VERSION_KEY in meta or method == DISCOVER or (headers is not None and headers.version == STATELESS_VERSION)
        )
        exchange.is_stateless = exchange.is_stateless or is_stateless
        if is_stateless:
            _check_envelope(method, params, meta, headers)
            session.protocol, session.client = STATELESS_VERSION, _client_in(meta.get(CLIENT_KEY))
        elif method != INITIALIZE:
            _check_version_header(headers)
            session.protocol = session.protocol or (headers.version if headers and headers.version else ASSUMED_VERSION)
        if method == CALL_TOOL:
            self._call(request_id, params, meta, exchange, is_stateless=is_stateless)
            return
        result = self._result_of(method, params, session, is_stateless=is_stateless)
        exchange.listed = exchange.listed or method == LIST_TOOLS
        exchange.add_result(request_id, result, is_stateless=is_stateless)

    def _result_of(
        self, method: str, params: "dict[str, Any]", session: Session, *, is_stateless: bool
    ) -> "dict[str, Any]":
        # The tools never change, but a client that caches the list would not ask for it, and the launch waits for that.
        caching = {"ttlMs": 0, "cacheScope": "private"} if is_stateless else {}
        if method == LIST_TOOLS:
            if params.get("cursor") is not None:
                raise ProtocolError(INVALID_PARAMS, "the cursor is unknown: the list of tools has one page")
            return {"tools": [tool.definition() for tool in self._tools.values()], **caching}
        if method == DISCOVER:
            return {
                "supportedVersions": [STATELESS_VERSION],
                "capabilities": {"tools": {}},
                "instructions": self._instructions,
                "_meta": {SERVER_KEY: self._info},
                **caching,
            }
        if method == INITIALIZE and not is_stateless:
            return self._initialize(params, session)
        if method == PING and not is_stateless:
            return {}
        raise ProtocolError(METHOD_NOT_FOUND, f"there is no method '{method[:100]}'")

    def _initialize(self, params: "dict[str, Any]", session: Session) -> "dict[str, Any]":
        asked = params.get("protocolVersion")
        if not isinstance(asked, str):
            raise ProtocolError(INVALID_PARAMS, "protocolVersion must be a text")
        session.protocol = asked if asked in SESSION_VERSIONS else LATEST_SESSION_VERSION
        session.client = _client_in(params.get("clientInfo"))
        return {
            "protocolVersion": session.protocol,
            "capabilities": {"tools": {}},
            "serverInfo": self._info,
            "instructions": self._instructions,
        }

    def _call(
        self,
        request_id: "RequestId",
        params: "dict[str, Any]",
        meta: "dict[str, Any]",
        exchange: Exchange,
        *,
        is_stateless: bool,
    ) -> None:
        name = params.get("name")
        if not isinstance(name, str):
            raise ProtocolError(INVALID_PARAMS, "name must be a text")
        tool = self._tools.get(name)
        if tool is None:
            raise ProtocolError(INVALID_PARAMS, f"there is no tool '{name[:100]}'; there are {', '.join(self._tools)}")
        arguments = _optional_object(params, "arguments")
        try:
            call = tool.read(arguments)
        except WrongArguments as wrong:
            # 2025-11-25, server/tools, "Error Handling": the model can correct its arguments only if it sees the error.
            fields = {"content": ToolResult(str(wrong)).content(), "isError": True}
            exchange.add_result(request_id, fields, is_stateless=is_stateless)
            return
        token = meta["progressToken"] if _is_id(meta.get("progressToken")) else None
        exchange.calls.append(ToolCall(request_id, tool, call, is_stateless=is_stateless, progress_token=token))


def _receive_notification(method: str, params: object, exchange: Exchange) -> None:
    """Notes a cancellation; ignores every other notification, and one that is malformed."""
    if method == CANCELLED and isinstance(params, dict):
        fields: dict[str, Any] = params  # pyright: ignore[reportUnknownVariableType]  # JSON has string keys
        if _is_id(fields.get("requestId")):
            exchange.canceled.append(fields["requestId"])


def _is_id(value: object) -> bool:
    """Returns whether the value may be the id of a request; a text with a lone surrogate could not be sent back."""
    if isinstance(value, str):
        return clean(value) == value
    return isinstance(value, int) and not isinstance(value, bool)


def _fields_of(message: object) -> "dict[str, Any]":
    if not isinstance(message, dict):
        raise ProtocolError(INVALID_REQUEST, "a message must be an object")
    return message  # pyright: ignore[reportUnknownVariableType]  # JSON has string keys


def _optional_object(fields: "dict[str, Any]", key: str) -> "dict[str, Any]":
    """Returns the object at `key`, or an empty one if there is none. Raises ProtocolError."""
    value: object = fields.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ProtocolError(INVALID_PARAMS, f"{key} must be an object")
    return value  # pyright: ignore[reportUnknownVariableType]  # JSON has string keys


def _method_of(fields: "dict[str, Any]") -> str:
    """Returns the method of a message, or an empty text for an answer. Raises ProtocolError."""
    if fields.get("jsonrpc") != "2.0":
        raise ProtocolError(INVALID_REQUEST, 'jsonrpc must be "2.0"')
    if "method" not in fields and ("result" in fields or "error" in fields):
        return ""  # this server asks nothing, and an answer to an answer could go on for ever
    method = fields.get("method")
    if not isinstance(method, str) or not method:
        raise ProtocolError(INVALID_REQUEST, "method must be a text")
    if "id" in fields and not _is_id(fields["id"]):
        raise ProtocolError(INVALID_REQUEST, "id must be a text or a whole number")
    return method


def _client_in(info: object) -> str:
    """Returns the name and version in a `clientInfo`, or an empty text."""
    if not isinstance(info, dict):
        return ""
    fields: dict[str, Any] = info  # pyright: ignore[reportUnknownVariableType]  # JSON has string keys
    words = [word for word in (fields.get("name"), fields.get("version")) if isinstance(word, str)]
    printable = "".join(char for char in " ".join(words) if char.isprintable())
    return printable.strip()[:MOST_CLIENT_LETTERS]


def _check_envelope(method: str, params: "dict[str, Any]", meta: "dict[str, Any]", headers: HttpHeaders | None) -> None:
    """Raises ProtocolError unless the request is a complete one of the new era, and its headers agree with it."""
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise ProtocolError(INVALID_PARAMS, f"params._meta lacks {', '.join(missing)}")
    version = meta[VERSION_KEY]
    if headers is not None:
        _check_headers(headers, version, method, params.get("name"))
    if not isinstance(version, str):
        raise ProtocolError(INVALID_PARAMS, f"{VERSION_KEY} must be a text")
    if version != STATELESS_VERSION:
        raise _unsupported(version, [STATELESS_VERSION])
    if not isinstance(meta[CAPABILITIES_KEY], dict):
        raise ProtocolError(INVALID_PARAMS, f"{CAPABILITIES_KEY} must be an object")


def _check_headers(headers: HttpHeaders, version: object, method: str, name: object) -> None:
    """Raises ProtocolError if the request says something else than its headers: proxies route by these."""
    if headers.version is None or headers.version != version:
        raise ProtocolError(HEADER_MISMATCH, "the header MCP-Protocol-Version differs from the request's version")
    if headers.method != method:
        raise ProtocolError(HEADER_MISMATCH, "the header Mcp-Method differs from the request's method")
    if method == CALL_TOOL and name is not None and headers.name != name:
        raise ProtocolError(HEADER_MISMATCH, "the header Mcp-Name differs from the tool's name")


def _check_version_header(headers: HttpHeaders | None) -> None:
    if headers is not None and headers.version is not None and headers.version not in SESSION_VERSIONS:
        raise _unsupported(headers.version, [*SESSION_VERSIONS, STATELESS_VERSION])


def _unsupported(version: str, supported: "list[str]") -> ProtocolError:
    asked = clean(version)[:100]
    return ProtocolError(
        UNSUPPORTED_VERSION, f"version '{asked}' is not supported", {"supported": supported, "requested": asked}
    )
