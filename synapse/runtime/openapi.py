"""The OpenAPI 3.1 document of what a gateway serves over HTTP, made from the tables that requests are routed by."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from synapse import __version__
from synapse.core.auth_methods import API_KEY_HEADER, AuthMethods
from synapse.dialects.a2a_v1.paths import TENANT
from synapse.dialects.dialect import AnyRoute, Dialect
from synapse.runtime.openapi_texts import DIALECTS, OPERATIONS, OTHER_MEDIA, PROBES, SENTENCES, SHAPES, STREAMS
from synapse.transports.routing import METHODS_WITH_BODY

Wire = dict[str, Any]
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_REF: Final = "#/components/schemas/"
_PROBED: Final = (("200", "it is so"), ("503", "it is not so now"))
_VERSION: Final[Wire] = {
    "name": "A2A-Version",
    "in": "header",
    "description": "Which version of A2A is spoken; without one the body tells.",
    "schema": {"type": "string", "enum": ["1.0", "0.3"]},
}
_FIRST_SENTENCES: Final = """\
Several dialects share the paths below `/agents/{agentId}/v1`: the version that a request names decides, else its body.
A task has the same id in all of them. A2A 1.0 has each of its paths also with a tenant in front, as
`/agents/{agentId}/v1/{tenant}/message:send`; it chooses nothing, because the path names the agent.
gRPC is served at a port of its own, and the hub's WebSocket at `/ws`."""


def openapi_document(dialects: Sequence[Dialect], methods: AuthMethods, url: str) -> Wire:
    """The document, whole; every route of the dialects is in it, those with a tenant in one sentence."""
    writer = _Writer()
    for dialect in dialects:
        for route in dialect.routes:
            # Each path of 1.0 has a twin with a tenant in it; listing them all twice would tell nothing more.
            if f"{{{TENANT}}}" not in route.path:
                writer.add(dialect, route)
    _name_rpc_methods(writer.paths, dialects)
    _add_probes(writer.paths)
    schemes = _security_schemes(methods)
    tags = dict.fromkeys(dialect.name for dialect in dialects)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Synapse gateway", "version": __version__, "description": _FIRST_SENTENCES},
        "servers": [{"url": url}],
        "tags": [{"name": name, "description": DIALECTS[name]} for name in tags],
        "security": [{name: []} for name in schemes],
        "paths": writer.paths,
        "components": {"schemas": writer.schemas, "securitySchemes": schemes},
    }


def key_of(route: AnyRoute) -> str:
    """A request by its method and its path, whatever its parameters are called."""
    return f"{route.method} {_PARAMETER.sub('{}', route.path)}"


class _Writer:
    """Puts one route after the other into the document; the first dialect of a path names its parameters."""

    def __init__(self) -> None:
        self.paths: Wire = {}
        self.schemas: Wire = {}
        self._operations: dict[str, Wire] = {}
        self._spelt: dict[str, str] = {}

    def add(self, dialect: Dialect, route: AnyRoute) -> None:
        key = key_of(route)
        operation = self._operations.get(key)
        if operation is None:
            operation = self._operations[key] = self._new(key, route)
        if dialect.name not in operation["tags"]:
            operation["tags"].append(dialect.name)
        shape = SHAPES.get((dialect.name, key))
        if shape is None:
            return
        if route.method in METHODS_WITH_BODY:
            content = operation["requestBody"]["content"]["application/json"]
            content["schema"].setdefault("anyOf", []).append(self._schema(dialect.name, shape))
        else:
            self._add_query(operation, dialect.name, shape)

    def _new(self, key: str, route: AnyRoute) -> Wire:
        path = self._spelt.setdefault(_PARAMETER.sub("{}", route.path), route.path)
        names = _PARAMETER.findall(path)
        parameters: list[Wire] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
        if "/v1" in path:
            parameters.append(_VERSION)
        operation: Wire = {
            "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{path}").strip("_"),
            "summary": SENTENCES[key],
            "tags": [],
            "parameters": parameters,
            "responses": _responses(key),
        }
        if route.method in METHODS_WITH_BODY:
            operation["requestBody"] = {"content": {"application/json": {"schema": {}}}}
        self.paths.setdefault(path, {})[route.method.lower()] = operation
        return operation

    def _add_query(self, operation: Wire, dialect: str, shape: Any) -> None:
        schema = self._schema(dialect, shape)
        fields: Wire = self.schemas.pop(schema["$ref"].removeprefix(_REF))["properties"]
        known = {parameter["name"] for parameter in operation["parameters"]}
        operation["parameters"] += [
            {"name": name, "in": "query", "schema": field} for name, field in fields.items() if name not in known
        ]

    def _schema(self, dialect: str, shape: Any) -> Wire:
        """The schema of a body; what it is made of goes to the components, below the dialect's name."""
        template = f"{_REF}{dialect}.{{name}}"
        (schema,), parts = msgspec.json.schema_components([shape], ref_template=template)
        self.schemas |= {f"{dialect}.{name}": part for name, part in parts.items()}
        return schema


def _responses(key: str) -> Wire:
    media = "text/event-stream" if key in STREAMS else OTHER_MEDIA.get(key, "application/json")
    told: Wire = {"description": "what was asked for", "content": {media: {}}}
    refused: Wire = {"description": "what was wrong, in the words of the dialect", "content": {"application/json": {}}}
    return {"2XX": told, "4XX": refused}


def _name_rpc_methods(paths: Wire, dialects: Iterable[Dialect]) -> None:
    names = [name for dialect in dialects if dialect.rpc is not None for name in dialect.rpc.methods]
    call: Wire = {
        "type": "object",
        "required": ["jsonrpc", "method"],
        "properties": {
            "jsonrpc": {"const": "2.0"},
            "id": {"type": ["string", "integer", "null"]},
            "method": {"enum": names},
            "params": {"type": "object"},
        },
    }
    for path in paths.values():
        operation = path.get("post")
        if operation is not None and operation["tags"] == ["jsonrpc"]:
            operation["requestBody"]["content"]["application/json"]["schema"] = call
            operation["responses"]["2XX"]["content"]["text/event-stream"] = {}


def _add_probes(paths: Wire) -> None:
    """What is answered in front of all dialects, and to everybody."""
    for path, summary in PROBES.items():
        answers: Wire = {status: {"description": text, "content": {"application/json": {}}} for status, text in _PROBED}
        told: Wire = {"operationId": f"get_{path.strip('/')}", "summary": summary, "tags": [OPERATIONS]}
        paths[path] = {"get": {**told, "parameters": [], "responses": answers, "security": []}}


def _security_schemes(methods: AuthMethods) -> Wire:
    schemes: Wire = {}
    if methods.api_keys:
        schemes["apiKey"] = {"type": "apiKey", "in": "header", "name": API_KEY_HEADER}
    if methods.bearer:
        schemes["bearer"] = {"type": "http", "scheme": "bearer"}
    return schemes
