"""Whatever is sent to the supervisor and hub dialects: a request or an InvalidRequest, never anything else."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from synapse.core.errors import InvalidRequest
from synapse.dialects.dialect import WireRequest
from synapse.dialects.hub.stream import decode_incoming
from tests.unit.dialects.hub import samples as hub
from tests.unit.dialects.supervisor import samples as supervisor
from tests.unit.dialects.synapse.test_hostile_bodies import near

PARAMS = {"agentId": "agent1", "id": "t", "configId": "c", "taskId": "a:t", "messageId": "m"}
ROUTES = [*supervisor.ROUTES.values(), *hub.ROUTES.values()]
PUSH: dict[str, Any] = {
    "id": "c",
    "url": "u",
    "token": "t",
    "authentication": {"schemes": ["basic"], "credentials": "c"},
}
PARTS: list[dict[str, Any]] = [
    {"type": "text", "content": "t", "metadata": {}},
    {"type": "image", "content": "data:image/png;base64,aGk="},
    {"type": "file", "content": {"name": "n", "mimeType": "m", "data": "aGk=", "url": "u"}},
    {"type": "file", "content": "aGk="},
    {"type": "other", "content": None},
]
SUPERVISOR_BODY: dict[str, Any] = {
    "message": {"content": "t", "role": "user", "id": "m", "timestamp": "2025-11-18T10:00:00Z", "taskId": "t"},
    "configuration": {
        "acceptedOutputModes": ["text"],
        "historyLength": 1,
        "pushNotificationConfig": PUSH,
        "blocking": True,
    },
    "metadata": {},
    "taskId": "t",
    "pushNotificationConfig": PUSH,
}
HUB_BODY: dict[str, Any] = {
    "type": "message",
    "agentId": "a",
    "message": PARTS,
    "stream": True,
    "messageId": "m",
    "taskId": "t",
    "after": 3,
    "parentId": "p",
    "metadata": {},
    "state": "completed",
}
BODIES = st.one_of(near(SUPERVISOR_BODY), near(HUB_BODY)).map(lambda body: json.dumps(body).encode()) | st.binary(
    max_size=20
)
QUERIES = st.dictionaries(
    st.sampled_from(["status", "pageSize", "lastUpdatedAfter", "includeArtifacts", "metadata", "state", "limit"]),
    st.text(max_size=8) | st.sampled_from(["running", "1", "true", '{"a":1}', "a:b", "failed"]),
    max_size=3,
)


@settings(deadline=None)
@given(body=BODIES, fields=QUERIES, event_id=st.text(max_size=12), stream=st.booleans())
def test_every_route_reads_or_refuses(body: bytes, fields: dict[str, str], event_id: str, stream: bool) -> None:
    headers = [(b"last-event-id", event_id.encode("utf-8", "replace"))]
    if stream:
        headers.append((b"accept", b"text/event-stream"))
    query = "&".join(f"{key}={value}" for key, value in fields.items()).encode("utf-8", "replace")
    for route in ROUTES:
        with suppress(InvalidRequest):
            route.ask(WireRequest(route.method, route.path, PARAMS, query, headers, body))


@settings(deadline=None)
@given(frame=near(HUB_BODY).map(json.dumps) | st.text(max_size=20) | st.binary(max_size=20))
def test_every_frame_is_read_or_refused(frame: str | bytes) -> None:
    with suppress(InvalidRequest):
        decode_incoming(frame)
