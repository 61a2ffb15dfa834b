"""The reference page of the dialects that only a gateway speaks; `docs.generate` writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from synapse.core.task import TaskState
from synapse.dialects import paths
from synapse.dialects.hub.encode import STATE_NAMES as HUB_STATES
from synapse.dialects.supervisor.encode import STATE_NAMES as SUPERVISOR_STATES
from synapse.mcp.server import SESSION_VERSIONS, STATELESS_VERSION
from synapse.mcp.tools import GATEWAY_TOOLS, Tool

MOUNT: Final = "/agents/{agentId}/v1"

# What each operation is for. An operation without a line here fails the generation.
SUPERVISOR_PURPOSES: Final = {
    "send": 'send `{"message": {"content": …, "role": "user"}}`; with `"configuration": {"blocking": true}` beside '
    "`message` the answer waits",
    "stream": "the same, answered with server-sent events",
    "list": "tasks: `?contextId`, `status`, `pageSize`, `pageToken`, `historyLength`, `lastUpdatedAfter` in "
    'milliseconds, `includeArtifacts`, `metadata` (`{"key": "value"}` or `key:value`)',
    "get": "one task: `?historyLength`",
    "cancel": "stop a task",
    "subscribe": "follow a task; `Last-Event-ID` goes on after an event",
    "set_push": "tell a webhook about the task",
    "list_push": "the webhooks of a task",
    "get_push": "one of them",
    "delete_push": "tell it nothing more",
}
HUB_PURPOSES: Final = {
    "list_agents": "the agents, by their cards",
    "get_agent": "one card",
    "send": 'send `{"message": [{"type": "text", "content": …}]}`; 202 with `taskId` and `messageId`. '
    'With `"stream": true` server-sent events. Also: `messageId`, `taskId`, `parentId`, `contextId`, `metadata`',
    "get_message": "a message by its id, with the task that it belongs to",
    "list_tasks": "tasks: `?agentId`, `state`, `parentId`, `userId`, `limit`, `cursor`",
    "get_task": "one task; with `Accept: text/event-stream` all that comes of it",
    "change_task": "replace the `metadata`, or move the task to a `state` that the lifecycle allows",
    "delete_task": "cancel what runs, and take the task out of all views; the log keeps it",
    "issue_ticket": "a ticket for one handshake of the WebSocket, for browsers, which can set no header there",
}
DASHBOARD_PURPOSES: Final = {
    "overview": 'read: `{"agents": [Row, …], "cursor", "at"}`, those that need a person first',
    "events": "read: the stream below; `?after=CURSOR` or `Last-Event-ID` resumes",
    "agent": 'read: `{"agent": Row, "status": …}`, the status as the agent\'s host has it, with the last 20 tasks that '
    "ended",
    "screen": "attach: what the agent's terminal shows as runs of text, as `GET /screen` of its host; `?lines` of "
    "scrollback, too; `If-None-Match` gets 304 while nothing changes",
    "send": 'send: `{"text", "priority"?, "files"?: [{"name", "media_type", "data"}], "message_id"?, "context_id"?, '
    '"task_id"?}`; 202 with `{"task": Task}`. `data` is base64. Priority 5 interrupts, and needs `cancel` too',
    "answer_agent": "approve: the same as below, for what an agent asks outside of a task",
    "seen": 'read, with a session: `{"until": TIME}`; answers until then no longer need anybody',
    "tasks": 'read: `?agent`, `state`, `from`, `search`, `context`, `limit` (up to 500), `cursor`; `{"tasks": '
    '[TaskRow, …], "next_cursor", "total"}`. With `from`, and for a key of some agents, `total` is null, and a page '
    "may be short and yet have a next one",
    "task": 'read: `{"task": Task, "row": TaskRow}`',
    "timeline": 'read: `{"events": [{"seq", "at", "type", …}], "next_after"}`, each text cut at 2,000 characters; '
    "`?after`, `limit` (up to 5,000)",
    "task_events": "read: the stream of one task, as `/tasks/{id}/subscribe` of a host",
    "file": "read: the bytes of the file with that `number` in the task: PNG, JPEG, GIF and WebP to be shown, all "
    "else to be downloaded",
    "answer": 'approve: `{"question_id", "verdict": "allow" or "deny"}`, or `option` or `text` instead of the verdict; '
    '`{"task": Task or null}`. 409 with `answered_by` if somebody was first',
    "cancel": 'cancel: `{"task": Task}`',
    "resolve": 'approve: `{"verdict": "delivered", "retry" or "fail"}` about a message in doubt; `{"task": Task}`',
    "figures": "read: `?hours=1` or `24`: messages per step, how long they took, how long people were waited for",
}

_INTRODUCTION: Final = """\
One address for all agents speaks [standard A2A](../howto/standard-a2a.md), MCP, and three dialects of its own. They
show the same tasks under the same ids, each in its words. What went wrong is told as in [errors](errors.md).
"""
_FLEET: Final = """\
At a gateway of a [fleet](../howto/fleet.md#one-gateway-for-all-machines) an agent of another machine is named with it,
as `codex@box2`. A message to a machine that is away is refused with `machine_away`. With the header
`Synapse-Queue: true` the gateway's machine keeps it for 24 hours, or for the `ttl` seconds of its metadata, at most
seven days, and its task is `submitted` meanwhile. More than 512 kB are not kept, nor is a message with a webhook. The
agents of a machine that is away are listed for ten minutes more. The header counts wherever a message is sent: A2A,
supervisor, hub, dashboard and MCP. Over gRPC it is metadata of the same name; the hub's WebSocket has none. For agents
of the gateway's own machine it means nothing.
"""
_SUPERVISOR: Final = f"""\
Below `{MOUNT}`, beside A2A 1.0 and 0.3. A request that names a version (`A2A-Version`) gets it; one without
is supervisor when its message has a text as `content`, or when it has no message and the task was not made otherwise.
Task ids are `agentId:taskId`; the plain id is taken, too.

A stream is `event: taskUpdate` with the whole task and `final`, then `event: done`. `messages` is what the agent said
(a system message says why there is no answer), `history` what was said before, `artifacts` what it handed over.
Each artifact has a `uri`: its address, or a `data:` URL that holds it. Texts and data are in `content`, too. A stream
that the gateway's end cuts off ends with `event: error`.
"""
_HUB: Final = """\
At the root. Parts are `text` (a string), `image` and `file` (`{"name", "mimeType", "data" | "url"}`, or one string: a
data URL, an address, base64), and any other type with any JSON as `content`.

The `metadata` of an agent has its `agentType` and its `state`: `starting`, `ready`, `working`, `waiting` or `exited`.
While its machine is away it also has `"away": true` and `since`: the state is the last one that was heard, the agent
may run on there, and only a message that is kept is taken for it.

A stream is `event: update` with `{"type": "partial", "content": …}` as the text grows (`"type": "replace"` when the
agent has rewritten it), then `event: complete` with `{"taskId": …}`, or `event: error`. The `id` of the last event in
`Last-Event-ID` goes on from there: send the same request again, or follow the task with a GET.

The WebSocket is at `/ws`: [how to talk to agents from a web page or a program](../howto/hub.md) has its messages, its
close codes, and examples.
"""


_MCP: Final = f"""\
At `POST {paths.MCP_PATH}`, Streamable HTTP for clients of MCP {", ".join(SESSION_VERSIONS)} (`initialize`) and
{STATELESS_VERSION} (`server/discover`). [How to connect one](../howto/mcp-gateway.md) has examples and limits.

There are no sessions and no `Mcp-Session-Id`: each request stands for itself. The answer is one JSON value; a call that
waits is answered with server-sent events if the client accepts `text/event-stream`: progress every 5 seconds if it gave
a token, a comment every 15, and the answer as the last event. Notifications get 202. `GET` and `DELETE` get 405. Other
statuses: 400 for what is no request or has a version or headers that do not fit, 401, 403, 404 for an unknown method in
{STATELESS_VERSION}, 406 for an `Accept` without JSON, 413, 415, 429. What a tool cannot do is a result with `isError`.
"""
_DASHBOARD: Final = """\
Below `/dashboard`, for a person's page, and for any program that wants to show what it shows. Everything needs
credentials: a key, a token, or the session of a browser; the first word below is the action that they must allow. A
caller sees the agents that it may use, and of their rows and tasks only what its scope has.

Names are in snake case. A Task is that of a host ([HTTP at an agent](http.md)), but a file in it has a `number` and a
`size` in place of its bytes. A TaskRow is flat: `id`, `agent` (its name here), `agent_id`, `from`, `from_agent` (the id
of a proven agent), `text` and `answer` (300 characters of each), `state`, `receipt`, `receipts`, `priority`,
`created_at`, `updated_at`, `reply_expected`, `waits_for` (the agent whose answer the task only waits for, or empty),
`parent_id`, `context_id`, `asks`, `reason`, `note`, `attention`, `files`.
A Row is one agent as `synapse top` shows it: `id`, `name`, `state` (`asks`, `in_doubt`, `failed`, `done`, `working`,
`queued`, `starting`, `ready`, `away`), `why`, `since`, `task`, `queue`, `unread`, `owes`, `needs`: what needs a person,
each with `kind`, `title`, `detail`, `options`, `question_id` and `can`.

The stream has these events. The `id` of each that has one is a position to resume after: nothing is lost, nothing
comes twice.

| event | data |
|---|---|
| `overview` | `{"agents": [Row, …], "cursor"}`; first, always |
| `agent` | `{"agent": Row}`: a row is new or has changed |
| `gone` | `{"id"}`: an agent has left; one whose host ended is `away` for a minute first |
| `task` | `{"seq", "event": {"type", "at", …}, "task": TaskRow}` for every event of a task |
| `resync` | `{}`: more than 1,000 events were missed; load the lists anew |
| `ping` | `{"at"}`, every 5 seconds |
| `error` | the last event, if the gateway ends or the credentials are no longer valid |

All texts are as agents and senders wrote them: show them as text, never as markup.
"""
_OPERATIONS: Final = """\
`GET /healthz` and `GET /readyz` for a supervisor, `GET /metrics` for Prometheus, `GET /openapi.json` and
`GET /docs` for programs and people: see [keep a gateway running](../howto/operate-the-gateway.md).
"""
_STATES: Final = """\
`expired` is a failed task whose deadline passed. A canceled task has the error `TASK_CANCELLED` in the hub, and any
other that failed `AGENT_EXECUTION_ERROR`.
"""


def gateway_page(notice: str) -> str:
    """The page, whole."""
    sections = [
        f"# HTTP at the gateway\n\n{notice}{_INTRODUCTION}",
        f"## Agents on other machines\n\n{_FLEET}",
        f"## Supervisor\n\n{_SUPERVISOR}",
        _routes(paths.SUPERVISOR_OPERATIONS, SUPERVISOR_PURPOSES, MOUNT),
        f"## Hub\n\n{_HUB}",
        _routes(paths.HUB_OPERATIONS, HUB_PURPOSES, ""),
        f"## Dashboard\n\n{_DASHBOARD}",
        _routes(paths.DASHBOARD_OPERATIONS, DASHBOARD_PURPOSES, ""),
        f"## MCP\n\n{_MCP}",
        _table(("tool", "arguments", "what it does"), map(_tool, GATEWAY_TOOLS)),
        f"## Operations\n\n{_OPERATIONS}",
        f"## States\n\n{_STATES}",
        _table(
            ("state", "supervisor", "hub"),
            ((state.value, _supervisor_words(state), f"`{HUB_STATES[state]}`") for state in TaskState),
        ),
    ]
    return "\n".join(sections)


def _routes(operations: Mapping[str, tuple[str, str]], purposes: Mapping[str, str], mount: str) -> str:
    rows = ((f"`{method} {mount}{path}`", purposes[name]) for name, (method, path) in operations.items())
    return _table(("request", "what it does"), rows)


def _tool(tool: Tool) -> tuple[str, ...]:
    names = (f"`{one.name}`" if one.required else f"`{one.name}`?" for one in tool.arguments)
    return f"`{tool.name}`", ", ".join(names), tool.description


def _supervisor_words(state: TaskState) -> str:
    also = " or `expired`" if state is TaskState.FAILED else ""
    return f"`{SUPERVISOR_STATES[state]}`{also}"


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return (
        "".join(f"| {' | '.join(cells)} |\n" for cells in lines).replace("| --- ", "|---").replace("--- |\n", "---|\n")
    )
