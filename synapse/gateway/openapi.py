"""The OpenAPI 3.1 document of what a gateway serves over HTTP, made from the tables that requests are routed by.

The OpenAPI document as a page for people. It loads nothing from anywhere, and runs no script.

What the OpenAPI document says in words about each request, and of which shape its body or its query is.

A request is named by its method and its path, without the names of the parameters: dialects that share a path may
call them differently.

What whoever keeps a gateway running asks it: its figures, and what it serves.

GET /metrics        for Prometheus
GET /openapi.json   what is served over HTTP, for programs
GET /docs           the same, for people
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any, Final, cast

import msgspec

from synapse import __version__
from synapse.core.caller import API_KEY_HEADER, AuthMethods
from synapse.core.requests import GetMetrics, MetricsSnapshot
from synapse.dialects import paths as current_paths
from synapse.dialects import paths as former_paths
from synapse.dialects import paths as hub_paths
from synapse.dialects import paths as supervisor_paths
from synapse.dialects import proto_json
from synapse.dialects.a2a_v0_3 import decode as former
from synapse.dialects.a2a_v1 import decode as current
from synapse.dialects.dialect import AnyRoute, Call, CallRoute, Dialect, DocumentRoute, WireAnswer, WireRequest
from synapse.dialects.hub import parts as hub
from synapse.dialects.hub.encode import encode_error
from synapse.dialects.paths import TENANT
from synapse.dialects.supervisor import decode as supervisor
from synapse.gateway.metrics import MEDIA_TYPE, Metrics
from synapse.server.middleware import HEALTH_PATH, READY_PATH
from synapse.server.routing import METHODS_WITH_BODY

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


_QUOTED: Final = re.compile("`([^`]+)`")

_STYLE: Final = """\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c1c1e;background:#fff}
h2{margin-top:2.5rem;border-bottom:1px solid #d1d1d6}
details{border-bottom:1px solid #e5e5ea;padding:.4rem 0}summary{cursor:pointer}
code{font-family:ui-monospace,monospace}b{display:inline-block;min-width:4.5rem}
pre{background:#f2f2f7;padding:.75rem;overflow:auto}
@media(prefers-color-scheme:dark){body{color:#f2f2f7;background:#1c1c1e}pre{background:#2c2c2e}}"""


def openapi_page(document: Wire) -> bytes:
    """The page, whole."""
    info = document["info"]
    sections = "".join(_section(document, tag) for tag in document["tags"])
    head = f'<meta charset="utf-8"><title>{escape(info["title"])}</title><style>{_STYLE}</style>'
    start = f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{_prose(info['description'])}</p>"
    link = '<p><a href="openapi.json">openapi.json</a></p>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{start}{link}{sections}</body></html>'.encode()


def _section(document: Wire, tag: Wire) -> str:
    shown = "".join(
        _operation(document, method, path, operation)
        for method, path, operation in _operations(document)
        if tag["name"] in operation["tags"]
    )
    return f"<h2>{escape(tag['name'])}</h2><p>{_prose(tag['description'])}</p>{shown}"


def _operations(document: Wire) -> Iterator[tuple[str, str, Wire]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _operation(document: Wire, method: str, path: str, operation: Wire) -> str:
    head = f"<summary><b>{method}</b> <code>{escape(path)}</code> {_prose(operation['summary'])}</summary>"
    given = {"parameters": operation["parameters"]}
    if body := operation.get("requestBody"):
        given["body"] = _resolved(body["content"]["application/json"]["schema"], document["components"]["schemas"])
    return f"<details>{head}<pre>{escape(json.dumps(given, indent=2, ensure_ascii=False))}</pre></details>"


def _prose(text: str) -> str:
    """What is quoted with backticks in the document stands out on the page."""
    return _QUOTED.sub(r"<code>\1</code>", escape(text))


def _resolved(schema: object, schemas: Wire) -> Any:
    """A schema with what it refers to written in place: no shape of ours holds itself."""
    if isinstance(schema, list):
        return [_resolved(one, schemas) for one in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast("Wire", schema)
    if reference := fields.get("$ref"):
        return _resolved(schemas[reference.rpartition("/")[2]], schemas)
    return {key: _resolved(value, schemas) for key, value in fields.items()}


_V1: Final = "/agents/{}/v1"
OPERATIONS: Final = "operations"
"""What the paths for whoever keeps the gateway running are called together."""
PROBES: Final[Mapping[str, str]] = {
    HEALTH_PATH: "Whether the process answers.",
    READY_PATH: "Whether requests can be served now.",
}

SENTENCES: Final[Mapping[str, str]] = {
    f"POST {_V1}/message:send": "Send a message to the agent, or more for a task that asks.",
    f"POST {_V1}/message:stream": "Send a message, and follow what comes of it.",
    f"GET {_V1}/tasks": "The tasks of the agent, the last changed first.",
    f"GET {_V1}/tasks/{{}}": "One task.",
    f"POST {_V1}/tasks/{{}}:cancel": "Stop a task.",
    f"GET {_V1}/tasks/{{}}:subscribe": "Follow a task; `Last-Event-ID` goes on after an event.",
    f"POST {_V1}/tasks/{{}}:subscribe": "Follow a task; `Last-Event-ID` goes on after an event.",
    f"POST {_V1}/tasks/{{}}/pushNotificationConfigs": "Tell a webhook what happens to the task.",
    f"GET {_V1}/tasks/{{}}/pushNotificationConfigs": "The webhooks of the task.",
    f"GET {_V1}/tasks/{{}}/pushNotificationConfigs/{{}}": "One webhook of the task.",
    f"DELETE {_V1}/tasks/{{}}/pushNotificationConfigs/{{}}": "Tell the webhook nothing more.",
    f"GET {_V1}/card": "The agent's card, for callers who are known.",
    f"GET {_V1}/extendedAgentCard": "The agent's card, for callers who are known.",
    f"GET {_V1}/.well-known/agent-card.json": "The agent's card.",
    "GET /agents/{}/.well-known/agent-card.json": "The agent's card.",
    "GET /.well-known/agent-card.json": "The card of the default agent.",
    "GET /.well-known/agent-cards/{}": "The agent's card; the name may end in `.json`.",
    f"POST {_V1}": "JSON-RPC of A2A 1.0 and 0.3: the method tells which.",
    "POST /agents/{}": "JSON-RPC of A2A 1.0 and 0.3: the method tells which.",
    "GET /agents/list.json": "Who is here.",
    "GET /agents": "Who is here, by their cards.",
    "GET /agents/{}": "The card of one agent.",
    "POST /agents": "Register an agent from elsewhere, by the address of its card.",
    "DELETE /agents/{}": "Forget an agent from elsewhere.",
    "POST /agents/{}/messages": "Send a message; with `stream` the answer is a stream.",
    "GET /messages/{}": "A message by its id, with the task that it belongs to.",
    "GET /tasks": "The tasks of all agents, the last changed first.",
    "GET /tasks/{}": "One task; with `Accept: text/event-stream` all that comes of it.",
    "PUT /tasks/{}": "Replace the task's metadata, or move it to another state.",
    "DELETE /tasks/{}": "Cancel what runs, and take the task out of all views.",
    "POST /ws/ticket": "Something that admits the caller to one WebSocket at `/ws`; for browsers.",
    "GET /status": "Who the gateway is.",
    "GET /metrics": "Figures for Prometheus.",
    "GET /openapi.json": "This document.",
    "GET /docs": "The same as a page for people.",
}
STREAMS: Final = frozenset(
    {
        f"POST {_V1}/message:stream",
        f"GET {_V1}/tasks/{{}}:subscribe",
        f"POST {_V1}/tasks/{{}}:subscribe",
    }
)
OTHER_MEDIA: Final[Mapping[str, str]] = {"GET /metrics": "text/plain", "GET /docs": "text/html"}

DIALECTS: Final[Mapping[str, str]] = {
    supervisor_paths.SUPERVISOR: "The supervisor contract: spoken when no version is named.",
    current_paths.A2A_V1: "A2A 1.0: spoken with `A2A-Version: 1.0`, or to a message with `parts` and a `ROLE_…`.",
    former_paths.A2A_V0_3: "A2A 0.3: spoken with `A2A-Version: 0.3`, or to a message as 0.3 writes it.",
    "jsonrpc": "A2A 1.0 and 0.3 as JSON-RPC 2.0.",
    hub_paths.HUB: "The hub: all agents and tasks at one place.",
    "discovery": "Who is here, and agents from elsewhere.",
    "gateway_status": "The gateway itself.",
    OPERATIONS: "For whoever keeps the gateway running.",
}

SHAPES: Final[Mapping[tuple[str, str], Any]] = {
    (supervisor_paths.SUPERVISOR, f"POST {_V1}/message:send"): supervisor.SendShape,
    (supervisor_paths.SUPERVISOR, f"POST {_V1}/message:stream"): supervisor.SendShape,
    (supervisor_paths.SUPERVISOR, f"GET {_V1}/tasks"): supervisor.ListShape,
    (supervisor_paths.SUPERVISOR, f"GET {_V1}/tasks/{{}}"): supervisor.GetShape,
    (supervisor_paths.SUPERVISOR, f"POST {_V1}/tasks/{{}}/pushNotificationConfigs"): supervisor.SetPushShape,
    (current_paths.A2A_V1, f"POST {_V1}/message:send"): current.SendShape,
    (current_paths.A2A_V1, f"POST {_V1}/message:stream"): current.SendShape,
    (current_paths.A2A_V1, f"GET {_V1}/tasks"): current.ListShape,
    (current_paths.A2A_V1, f"POST {_V1}/tasks/{{}}/pushNotificationConfigs"): current.PushShape,
    (former_paths.A2A_V0_3, f"POST {_V1}/message:send"): former.ProtoSendShape,
    (former_paths.A2A_V0_3, f"POST {_V1}/message:stream"): former.ProtoSendShape,
    (hub_paths.HUB, "POST /agents/{}/messages"): hub.MessageShape,
    (hub_paths.HUB, "GET /tasks"): hub.ListShape,
    (hub_paths.HUB, "PUT /tasks/{}"): hub.ChangeShape,
}
"""Of a GET the shape is that of its query."""


METRICS_PATH: Final = "/metrics"
OPENAPI_PATH: Final = "/openapi.json"
DOCS_PATH: Final = "/docs"

# The page has styles of its own, and nothing else.
_ONLY_STYLE: Final = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")


def operations_dialect(metrics: Metrics, dialects: Sequence[Dialect], methods: AuthMethods, url: str) -> Dialect:
    """The three paths; `dialects` is what else is served."""

    @cache
    def document() -> dict[str, Any]:
        # Few ever ask, so it is made for the first who does.

        return openapi_document([*dialects, ours], methods, url)

    def openapi(_wire: WireRequest) -> WireAnswer:
        return WireAnswer(200, proto_json.to_json(document()))

    def page(_wire: WireRequest) -> WireAnswer:

        return WireAnswer(200, openapi_page(document()), (_ONLY_STYLE,), media_type=b"text/html; charset=utf-8")

    def ask_metrics(_wire: WireRequest) -> Call[MetricsSnapshot]:
        return Call(GetMetrics(), metrics.text)

    ours = Dialect(
        name=OPERATIONS,
        routes=(
            CallRoute(method="GET", path=METRICS_PATH, ask=ask_metrics, media_type=MEDIA_TYPE),
            DocumentRoute(method="GET", path=OPENAPI_PATH, answer=openapi),
            DocumentRoute(method="GET", path=DOCS_PATH, answer=page),
        ),
        encode_error=encode_error,
    )
    return ours


def public_paths(*, discovery: Callable[[str], bool] | None, metrics: bool) -> Callable[[str], bool]:
    """Tells which paths need no credentials: those of discovery with what is served there, and those of figures."""

    def is_public(path: str) -> bool:
        if path == METRICS_PATH:
            return metrics
        return discovery is not None and (path in (OPENAPI_PATH, DOCS_PATH) or discovery(path))

    return is_public
