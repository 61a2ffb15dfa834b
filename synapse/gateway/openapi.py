"""The paths for operators of a gateway, and the OpenAPI 3.1 document of everything that it serves over HTTP.

    GET /metrics        the metrics, for Prometheus
    GET /openapi.json   the document, for programs
    GET /docs           the document as a page, for people

The document is built from the tables that requests are routed by, with a summary and a shape for each operation. An
operation is identified by its method and its path without the names of the parameters, because dialects that share a
path name them differently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any, Final, cast

import msgspec

from synapse import __version__
from synapse.core.caller import API_KEY_HEADER, AuthMethods
from synapse.core.requests import GetMetrics, MetricsSnapshot
from synapse.dialects import proto_json
from synapse.dialects.a2a_v0_3 import decode as a2a_0_3
from synapse.dialects.a2a_v1 import decode as a2a_1_0
from synapse.dialects.dashboard import decode as dashboard
from synapse.dialects.dialect import AnyRoute, Call, CallRoute, Dialect, DocumentRoute, WireAnswer, WireRequest
from synapse.dialects.hub import parts as hub
from synapse.dialects.hub.encode import encode_error
from synapse.dialects.paths import A2A_V0_3, A2A_V1, DASHBOARD, HUB, MCP, SUPERVISOR, TENANT
from synapse.dialects.supervisor import decode as supervisor
from synapse.gateway.metrics import MEDIA_TYPE, Metrics
from synapse.gateway.sessions import LinkShape, SessionShape
from synapse.server.middleware import HEALTH_PATH, READY_PATH
from synapse.server.routing import METHODS_WITH_BODY

Wire = dict[str, Any]

METRICS_PATH: Final = "/metrics"
OPENAPI_PATH: Final = "/openapi.json"
DOCS_PATH: Final = "/docs"
# The page has inline styles, and nothing else.
_CONTENT_SECURITY: Final = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_REF: Final = "#/components/schemas/"
_PROBE_ANSWERS: Final = (("200", "yes"), ("503", "no"))
_VERSION: Final[Wire] = {
    "name": "A2A-Version",
    "in": "header",
    "description": "The version of A2A of this request; without it, the body decides.",
    "schema": {"type": "string", "enum": ["1.0", "0.3"]},
}
_QUEUE: Final[Wire] = {
    "name": "Synapse-Queue",
    "in": "header",
    "description": "Whether to keep the message for an agent on another machine of the fleet while that is away.",
    "schema": {"type": "string", "enum": ["true"]},
}
_DESCRIPTION: Final = """\
Several dialects share the paths below `/agents/{agentId}/v1`: the version that a request names decides, else its body.
A task has one id in all of them. Each path of A2A 1.0 also exists with a tenant in front, as
`/agents/{agentId}/v1/{tenant}/message:send`; the tenant has no effect, because the path names the agent.
gRPC has a port of its own, and the hub's WebSocket is at `/ws`. The dashboard for people is the page at `/`."""
_QUOTED: Final = re.compile("`([^`]+)`")
_STYLE: Final = """\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c1c1e;background:#fff}
h2{margin-top:2.5rem;border-bottom:1px solid #d1d1d6}
details{border-bottom:1px solid #e5e5ea;padding:.4rem 0}summary{cursor:pointer}
code{font-family:ui-monospace,monospace}b{display:inline-block;min-width:4.5rem}
pre{background:#f2f2f7;padding:.75rem;overflow:auto}
@media(prefers-color-scheme:dark){body{color:#f2f2f7;background:#1c1c1e}pre{background:#2c2c2e}}"""

_V1: Final = "/agents/{}/v1"
OPERATIONS: Final = "operations"
"""The name of the dialect for operators."""
PROBES: Final[Mapping[str, str]] = {
    HEALTH_PATH: "Check that the process answers.",
    READY_PATH: "Check that requests can be served now.",
}

SENTENCES: Final[Mapping[str, str]] = {
    f"POST {_V1}/message:send": "Send a message to the agent, or more input for a task.",
    f"POST {_V1}/message:stream": "Send a message, and follow its task.",
    f"GET {_V1}/tasks": "List the tasks of the agent, the last changed first.",
    f"GET {_V1}/tasks/{{}}": "Get a task.",
    f"POST {_V1}/tasks/{{}}:cancel": "Cancel a task.",
    f"GET {_V1}/tasks/{{}}:subscribe": "Follow a task; `Last-Event-ID` resumes after an event.",
    f"POST {_V1}/tasks/{{}}:subscribe": "Follow a task; `Last-Event-ID` resumes after an event.",
    f"POST {_V1}/tasks/{{}}/pushNotificationConfigs": "Add a webhook for the task's updates.",
    f"GET {_V1}/tasks/{{}}/pushNotificationConfigs": "List the webhooks of the task.",
    f"GET {_V1}/tasks/{{}}/pushNotificationConfigs/{{}}": "Get a webhook of the task.",
    f"DELETE {_V1}/tasks/{{}}/pushNotificationConfigs/{{}}": "Remove a webhook of the task.",
    f"GET {_V1}/card": "Get the agent's card for authenticated callers.",
    f"GET {_V1}/extendedAgentCard": "Get the agent's card for authenticated callers.",
    f"GET {_V1}/.well-known/agent-card.json": "Get the agent's card.",
    "GET /agents/{}/.well-known/agent-card.json": "Get the agent's card.",
    "GET /.well-known/agent-card.json": "Get the card of the default agent.",
    "GET /.well-known/agent-cards/{}": "Get the agent's card; the name may end in `.json`.",
    f"POST {_V1}": "Call a JSON-RPC method of A2A 1.0 or 0.3; its name decides which.",
    "POST /agents/{}": "Call a JSON-RPC method of A2A 1.0 or 0.3; its name decides which.",
    "GET /agents/list.json": "List the agents.",
    "GET /agents": "List the cards of all agents.",
    "GET /agents/{}": "Get the card of one agent.",
    "POST /agents": "Register an external agent by the URL of its card.",
    "DELETE /agents/{}": "Remove an external agent.",
    "POST /agents/{}/messages": "Send a message; with `stream` the response is a stream.",
    "GET /messages/{}": "Get a message by its id, with its task.",
    "GET /tasks": "List the tasks of all agents, the last changed first.",
    "GET /tasks/{}": "Get a task; with `Accept: text/event-stream` follow it.",
    "PUT /tasks/{}": "Replace the task's metadata, or change its state.",
    "DELETE /tasks/{}": "Cancel a running task, and remove it from all lists.",
    "POST /ws/ticket": "Issue a ticket for one WebSocket connection at `/ws`; for browsers.",
    "POST /mcp": "Send a message of MCP: list the tools, or call one. A call that waits may answer with a stream.",
    "POST /dashboard/links": "Make a one-time link to the dashboard; for a person, on the gateway's Unix socket.",
    "POST /dashboard/session": "Open a browser's session with the code of a link.",
    "GET /dashboard/session": "Get the session of this request.",
    "DELETE /dashboard/session": "End the session of this request.",
    "GET /dashboard/overview": "Get all agents as rows: what each does, and what needs a person.",
    "GET /dashboard/events": "Follow the rows of all agents and the events of all tasks; `Last-Event-ID` resumes.",
    "GET /dashboard/agents/{}": "Get the row and the whole status of an agent.",
    "GET /dashboard/agents/{}/screen": "Get what the agent's terminal shows, as styled text; 304 while it is the same.",
    "POST /dashboard/agents/{}/messages": "Send a message with files; priority 5 interrupts, and needs `cancel` too.",
    "POST /dashboard/agents/{}/answer": "Answer what the agent asks outside of a task, such as at its start.",
    "POST /dashboard/agents/{}/seen": "Note that the person of a session has seen the agent's answers until a time.",
    "GET /dashboard/tasks": "List tasks as rows, the last changed first; `search` finds words in their texts.",
    "GET /dashboard/tasks/{}": "Get a task, whole and as a row.",
    "GET /dashboard/tasks/{}/timeline": "List the events of a task, with long texts cut.",
    "GET /dashboard/tasks/{}/events": "Follow a task; `Last-Event-ID` resumes after an event.",
    "GET /dashboard/tasks/{}/files/{}": "Get the bytes of a file of the task, by its `number` there.",
    "POST /dashboard/tasks/{}/answer": "Answer the open question of a task; 409 says who answered first.",
    "POST /dashboard/tasks/{}/cancel": "Cancel a task.",
    "POST /dashboard/tasks/{}/resolve": "Decide about a message in doubt.",
    "GET /dashboard/figures": "Get how many messages the agents got in the last 1 or 24 hours, and how long they took.",
    "GET /status": "Get the gateway's id, address and state.",
    "GET /metrics": "Get the metrics, for Prometheus.",
    "GET /openapi.json": "Get this document.",
    "GET /docs": "Get this document as a page for people.",
}
STREAMS: Final = frozenset(
    {
        f"POST {_V1}/message:stream",
        f"GET {_V1}/tasks/{{}}:subscribe",
        f"POST {_V1}/tasks/{{}}:subscribe",
        "GET /dashboard/events",
        "GET /dashboard/tasks/{}/events",
    }
)
SENDING: Final = frozenset(
    {
        f"POST {_V1}/message:send",
        f"POST {_V1}/message:stream",
        f"POST {_V1}",
        "POST /agents/{}",
        "POST /agents/{}/messages",
        "POST /mcp",
        "POST /dashboard/agents/{}/messages",
    }
)
"""What sends messages to agents, and takes the header that keeps them."""
OTHER_MEDIA: Final[Mapping[str, str]] = {
    "GET /metrics": "text/plain",
    "GET /docs": "text/html",
    "GET /dashboard/tasks/{}/files/{}": "application/octet-stream",
}

DIALECTS: Final[Mapping[str, str]] = {
    SUPERVISOR: "The supervisor contract, for requests that name no version.",
    A2A_V1: "A2A 1.0, for requests with `A2A-Version: 1.0`, or a message with `parts` and a `ROLE_…`.",
    A2A_V0_3: "A2A 0.3, for requests with `A2A-Version: 0.3`, or a message in the format of 0.3.",
    "jsonrpc": "A2A 1.0 and 0.3 as JSON-RPC 2.0.",
    HUB: "The hub: all agents and tasks under one API.",
    MCP: "The Model Context Protocol over Streamable HTTP: tools for models.",
    DASHBOARD: "What the page at `/` asks, with a browser's session; also for callers with a key.",
    "discovery": "The list of agents, their cards, and external agents.",
    "gateway_status": "The gateway itself.",
    OPERATIONS: "For operators of the gateway.",
}

SHAPES: Final[Mapping[tuple[str, str], Any]] = {
    (SUPERVISOR, f"POST {_V1}/message:send"): supervisor.SendShape,
    (SUPERVISOR, f"POST {_V1}/message:stream"): supervisor.SendShape,
    (SUPERVISOR, f"GET {_V1}/tasks"): supervisor.ListShape,
    (SUPERVISOR, f"GET {_V1}/tasks/{{}}"): supervisor.GetShape,
    (SUPERVISOR, f"POST {_V1}/tasks/{{}}/pushNotificationConfigs"): supervisor.SetPushShape,
    (A2A_V1, f"POST {_V1}/message:send"): a2a_1_0.SendShape,
    (A2A_V1, f"POST {_V1}/message:stream"): a2a_1_0.SendShape,
    (A2A_V1, f"GET {_V1}/tasks"): a2a_1_0.ListShape,
    (A2A_V1, f"POST {_V1}/tasks/{{}}/pushNotificationConfigs"): a2a_1_0.PushShape,
    (A2A_V0_3, f"POST {_V1}/message:send"): a2a_0_3.ProtoSendShape,
    (A2A_V0_3, f"POST {_V1}/message:stream"): a2a_0_3.ProtoSendShape,
    (HUB, "POST /agents/{}/messages"): hub.MessageShape,
    (HUB, "GET /tasks"): hub.ListShape,
    (HUB, "PUT /tasks/{}"): hub.ChangeShape,
    (DASHBOARD, "GET /dashboard/events"): dashboard.EventsShape,
    (DASHBOARD, "GET /dashboard/agents/{}/screen"): dashboard.ScreenShape,
    (DASHBOARD, "POST /dashboard/agents/{}/messages"): dashboard.MessageShape,
    (DASHBOARD, "POST /dashboard/agents/{}/answer"): dashboard.AnswerShape,
    (DASHBOARD, "POST /dashboard/agents/{}/seen"): dashboard.SeenShape,
    (DASHBOARD, "GET /dashboard/tasks"): dashboard.TasksShape,
    (DASHBOARD, "GET /dashboard/tasks/{}/timeline"): dashboard.TimelineShape,
    (DASHBOARD, "GET /dashboard/tasks/{}/events"): dashboard.EventsShape,
    (DASHBOARD, "POST /dashboard/tasks/{}/answer"): dashboard.AnswerShape,
    (DASHBOARD, "POST /dashboard/tasks/{}/resolve"): dashboard.ResolveShape,
    (DASHBOARD, "GET /dashboard/figures"): dashboard.FiguresShape,
    (DASHBOARD, "POST /dashboard/links"): LinkShape,
    (DASHBOARD, "POST /dashboard/session"): SessionShape,
}
"""The shape of each body; for a GET, the shape of its query."""


def operations_dialect(metrics: Metrics, dialects: Sequence[Dialect], methods: AuthMethods, url: str) -> Dialect:
    """Returns the dialect of the three paths; `dialects` are the others that the gateway serves."""

    @cache
    def document() -> Wire:
        # Built for the first request, because few gateways ever get one.
        return openapi_document([*dialects, ours], methods, url)

    def openapi(_wire: WireRequest) -> WireAnswer:
        return WireAnswer(200, proto_json.to_json(document()))

    def page(_wire: WireRequest) -> WireAnswer:
        return WireAnswer(200, openapi_page(document()), (_CONTENT_SECURITY,), media_type=b"text/html; charset=utf-8")

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


def public_paths(
    *, discovery: Callable[[str], bool] | None, metrics: bool, always: Collection[str] = ()
) -> Callable[[str], bool]:
    """Returns the check which paths need no credentials: discovery with the documents, the metrics, and `always`."""

    def is_public(path: str) -> bool:
        if path in always:
            return True
        if path == METRICS_PATH:
            return metrics
        return discovery is not None and (path in (OPENAPI_PATH, DOCS_PATH) or discovery(path))

    return is_public


def openapi_document(dialects: Sequence[Dialect], methods: AuthMethods, url: str) -> Wire:
    """Returns the document with every route of the dialects; its description covers those with a tenant."""
    writer = _Writer()
    for dialect in dialects:
        for route in dialect.routes:
            # Each path of 1.0 exists once more with a tenant in it, and does nothing else there.
            if f"{{{TENANT}}}" not in route.path:
                writer.add(dialect, route)
    _name_rpc_methods(writer.paths, dialects)
    _add_probes(writer.paths)
    schemes = _security_schemes(methods)
    tags = dict.fromkeys(dialect.name for dialect in dialects)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Synapse gateway", "version": __version__, "description": _DESCRIPTION},
        "servers": [{"url": url}],
        "tags": [{"name": name, "description": DIALECTS[name]} for name in tags],
        "security": [{name: []} for name in schemes],
        "paths": writer.paths,
        "components": {"schemas": writer.schemas, "securitySchemes": schemes},
    }


def key_of(route: AnyRoute) -> str:
    """Returns the identity of an operation: its method and its path, without the names of its parameters."""
    return f"{route.method} {_PARAMETER.sub('{}', route.path)}"


class _Writer:
    """Adds routes to the document; the first dialect of a path names its parameters."""

    def __init__(self) -> None:
        self.paths: Wire = {}
        self.schemas: Wire = {}
        self._operations: dict[str, Wire] = {}
        self._spellings: dict[str, str] = {}

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
        path = self._spellings.setdefault(_PARAMETER.sub("{}", route.path), route.path)
        names = _PARAMETER.findall(path)
        parameters: list[Wire] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
        if "/v1" in path:
            parameters.append(_VERSION)
        if key in SENDING:
            parameters.append(_QUEUE)
        media = "text/event-stream" if key in STREAMS else OTHER_MEDIA.get(key, "application/json")
        operation: Wire = {
            "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{path}").strip("_"),
            "summary": SENTENCES[key],
            "tags": [],
            "parameters": parameters,
            "responses": {
                "2XX": {"description": "the result", "content": {media: {}}},
                "4XX": {"description": "the error, as the dialect encodes it", "content": {"application/json": {}}},
            },
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
        """Returns the schema of a shape; its components are named after the dialect."""
        template = f"{_REF}{dialect}.{{name}}"
        (schema,), parts = msgspec.json.schema_components([shape], ref_template=template)
        self.schemas |= {f"{dialect}.{name}": part for name, part in parts.items()}
        return schema


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
    of_mcp: Wire = {**call, "properties": {**call["properties"], "method": {"type": "string"}}}
    schemas = {"jsonrpc": call, MCP: of_mcp}
    for path in paths.values():
        operation = path.get("post")
        schema = schemas.get(operation["tags"][0]) if operation is not None else None
        if operation is not None and schema is not None:
            operation["requestBody"]["content"]["application/json"]["schema"] = schema
            operation["responses"]["2XX"]["content"]["text/event-stream"] = {}


def _add_probes(paths: Wire) -> None:
    """Adds the probes, which are answered before any dialect, and without credentials."""
    for path, summary in PROBES.items():
        answers: Wire = {
            status: {"description": text, "content": {"application/json": {}}} for status, text in _PROBE_ANSWERS
        }
        probe: Wire = {"operationId": f"get_{path.strip('/')}", "summary": summary, "tags": [OPERATIONS]}
        paths[path] = {"get": {**probe, "parameters": [], "responses": answers, "security": []}}


def _security_schemes(methods: AuthMethods) -> Wire:
    schemes: Wire = {}
    if methods.api_keys:
        schemes["apiKey"] = {"type": "apiKey", "in": "header", "name": API_KEY_HEADER}
    if methods.bearer:
        schemes["bearer"] = {"type": "http", "scheme": "bearer"}
    return schemes


def openapi_page(document: Wire) -> bytes:
    """Returns the document as a page. It loads nothing from elsewhere, and runs no script."""
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
    """Returns text as HTML, with backticks as code."""
    return _QUOTED.sub(r"<code>\1</code>", escape(text))


def _resolved(schema: object, schemas: Wire) -> Any:
    """Returns a schema with its references replaced by their targets; no shape refers to itself."""
    if isinstance(schema, list):
        return [_resolved(one, schemas) for one in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast("Wire", schema)
    if reference := fields.get("$ref"):
        return _resolved(schemas[reference.rpartition("/")[2]], schemas)
    return {key: _resolved(value, schemas) for key, value in fields.items()}
