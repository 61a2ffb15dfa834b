"""Serves JSON-RPC 2.0 at one path: the body names the method, and the method the dialect, unless the headers name one.

Every call is answered with HTTP status 200 and its id, also with an error: clients do not read the body of any other
status. Every event of a stream repeats the id of its call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeVar, cast

import msgspec

from synapse.core.errors import AccessDenied, MalformedCall, MalformedJson, RateLimited, RouteNotFound, SynapseError
from synapse.core.events import Update
from synapse.dialects.dialect import (
    AnyCall,
    Call,
    CallRoute,
    Dialect,
    RpcTable,
    StreamCall,
    WireAnswer,
    WireEvent,
    WireRequest,
)
from synapse.server import sse

R = TypeVar("R")

JSONRPC: Final = "jsonrpc"
"""The name of the dialect."""

CallId = str | int | None
EncodeFault = Callable[[SynapseError], bytes]
EncodeError = Callable[[SynapseError], WireAnswer]
Demanded = Callable[[WireRequest], str]
"""Returns the name of the dialect that a request demands, or an empty string; raises a SynapseError."""


def rpc_dialect(dialects: Sequence[Dialect], demanded: Demanded, path: str = "/") -> Dialect:
    """Returns a dialect that serves the methods of these at one path. The first encodes errors that belong to none."""
    spoken = {dialect.name: dialect for dialect in dialects if dialect.rpc is not None}
    tables = {name: dialect.rpc for name, dialect in spoken.items() if dialect.rpc is not None}
    dispatcher = RpcDispatcher(tables, demanded)
    refuse = partial(_refuse_unread, spoken, demanded)
    route = CallRoute(method="POST", path=path, ask=dispatcher.ask, refuse=refuse)
    return Dialect(name=JSONRPC, routes=(route,), encode_error=partial(_fault_answer, dispatcher.encode_fault, None))


def _refuse_unread(
    dialects: Mapping[str, Dialect], demanded: Demanded, wire: WireRequest, error: SynapseError
) -> WireAnswer:
    """Encodes an error from before the call was read: in the version that the headers name, without the call's id.

    A refusal of access also has the HTTP status and the challenge.
    """
    dialect = dialects.get(_demanded_or_empty(demanded, wire)) or next(iter(dialects.values()))
    table = cast("RpcTable", dialect.rpc)
    answer = _fault_answer(table.encode_fault, None, error)
    if not isinstance(error, AccessDenied | RateLimited):
        return answer
    plain = dialect.encode_error(error)
    return answer._replace(status=plain.status, headers=plain.headers)


def _demanded_or_empty(demanded: Demanded, wire: WireRequest) -> str:
    """Returns the dialect that the headers demand, or an empty string, also for an unknown one."""
    try:
        return demanded(wire)
    except SynapseError:
        return ""


class _CallShape(msgspec.Struct):
    jsonrpc: Literal["2.0"]
    method: str
    id: CallId = None
    params: msgspec.Raw = msgspec.Raw(b"")


_CALL: Final = msgspec.json.Decoder(_CallShape)
_ID: Final = msgspec.json.Encoder()


class RpcDispatcher:
    """Finds the dialect and the method of a call."""

    def __init__(self, tables: Mapping[str, RpcTable], demanded: Demanded) -> None:
        self._tables = tables
        self._first = next(iter(tables.values()))
        self._demanded = demanded
        self.encode_fault = self._first.encode_fault

    def ask(self, wire: WireRequest) -> AnyCall | WireAnswer:
        """Returns the decoded call, or the error that answers it."""
        try:
            rpc = _read(wire.body)
        except MalformedCall as error:
            return _fault_answer(self._table_of_unread(wire).encode_fault, _id_in(wire.body), error)
        except SynapseError as error:
            return _fault_answer(self._table_of_unread(wire).encode_fault, None, error)
        try:
            table = self._table(rpc.method, self._demanded(wire))
        except SynapseError as error:
            return _fault_answer(self.encode_fault, rpc.id, error)
        encode_as = _fault_event if rpc.method in table.faults_as_events else _fault_answer
        encode_error: EncodeError = partial(encode_as, table.encode_fault, rpc.id)
        ask = table.methods.get(rpc.method)
        if ask is None:
            hint = "known here: " + ", ".join(table.methods)
            return encode_error(RouteNotFound(f"there is no method '{rpc.method[:80]}'", hint=hint))
        try:
            call = ask(bytes(rpc.params), wire)
        except SynapseError as error:
            return encode_error(error)
        return _with_id(call, rpc.id, encode_error)

    def _table_of_unread(self, wire: WireRequest) -> RpcTable:
        """Returns the table for a call whose method cannot be read: by the version in the headers."""
        return self._tables.get(_demanded_or_empty(self._demanded, wire), self._first)

    def _table(self, method: str, demanded: str) -> RpcTable:
        """Returns the demanded table, else the one that has the method, else the first."""
        if demanded:
            return self._tables[demanded]
        for table in self._tables.values():
            if method in table.methods:
                return table
        return self._first


def _read(body: bytes) -> _CallShape:
    """Returns the call. Raises MalformedJson, or MalformedCall if it is JSON and not a call."""
    try:
        return _CALL.decode(body)
    except msgspec.ValidationError as error:
        if body.lstrip()[:1] == b"[":
            raise MalformedCall("batches are not taken", hint="send one call at a time") from error
        what, _, field = str(error).partition(" - at `$.")
        place = f"{field.rstrip('`')}: " if field else ""
        raise MalformedCall(f"this is not a JSON-RPC 2.0 call: {place}{what[:1].lower()}{what[1:]}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = str(error).removeprefix("JSON is malformed: ")
        raise MalformedJson(f"the body is not JSON: {why[:1].lower()}{why[1:]}") from error
    except RecursionError as error:
        raise MalformedCall("the body is nested too deep", hint="send deep structures as a file part") from error


def _id_in(body: bytes) -> CallId:
    """Returns the id in the JSON of a malformed call, or None if it has no usable one."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    given = cast("dict[str, Any]", value).get("id") if isinstance(value, dict) else None
    return given if isinstance(given, str | int) and not isinstance(given, bool) else None


def _with_id(call: AnyCall, call_id: CallId, encode_error: EncodeError) -> AnyCall:
    """Returns the call with encoders that add its id to each answer, event and error."""
    head = b'{"jsonrpc":"2.0","id":%b,"result":' % _ID.encode(call_id)
    if isinstance(call, StreamCall):
        return StreamCall(call.request, partial(_event_with_head, head, call.encode), encode_error, call.headers)
    return Call(call.request, partial(_result_with_head, head, call.encode), encode_error, headers=call.headers)


def _result_with_head(head: bytes, encode: Callable[[R], bytes], result: R) -> bytes:
    return b"%b%b}" % (head, encode(result))


def _event_with_head(head: bytes, encode: Callable[[Update], WireEvent | None], update: Update) -> WireEvent | None:
    event = encode(update)
    return None if event is None else event._replace(data=b"%b%b}" % (head, event.data))


def _fault_answer(encode_fault: EncodeFault, call_id: CallId, error: SynapseError) -> WireAnswer:
    body = b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (_ID.encode(call_id), encode_fault(error))
    return WireAnswer(200, body, error=error.code)


def _fault_event(encode_fault: EncodeFault, call_id: CallId, error: SynapseError) -> WireAnswer:
    """Encodes an error as the only event of a stream."""
    answer = _fault_answer(encode_fault, call_id, error)
    return answer._replace(body=b"data: %b\n\n" % answer.body, media_type=sse.MEDIA_TYPE)
