"""How gRPC says that something is wrong: the status of the table of A2A 1.0.1, and ErrorInfo in the trailer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from google.protobuf import json_format
from google.rpc import (  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  # untyped
    code_pb2,
    error_details_pb2,
    status_pb2,
)

from synapse.core.errors import SynapseError
from synapse.dialects.a2a_v1.errors import encode_error

DETAILS: Final = "grpc-status-details-bin"
KNOWN_DETAILS: Final = (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest)
"""What a status may carry. Naming them loads them: only then JSON's `@type` can be read."""

_TRAILERS: Final = frozenset({"www-authenticate", "retry-after"})

Trailer = tuple[str, str | bytes]


class Told(NamedTuple):
    """An error as gRPC tells it: the status by its name and number, and what stands in the trailer."""

    status: str
    number: int
    trailers: tuple[Trailer, ...]


def tell(error: SynapseError) -> Told:
    """The REST answer has all of it already: status, message and details are those of google.rpc.Status."""
    answer = encode_error(error)
    body: Mapping[str, Any] = msgspec.json.decode(answer.body)["error"]
    number = code_pb2.Code.Value(body["status"])
    fields = {"code": number, "message": body["message"], "details": body["details"]}
    rich = json_format.ParseDict(fields, status_pb2.Status())
    named = ((name.decode("ascii"), value.decode("latin-1")) for name, value in answer.headers)
    kept = tuple((name, value) for name, value in named if name in _TRAILERS and value.isascii())
    return Told(body["status"], number, ((DETAILS, rich.SerializeToString()), *kept))
