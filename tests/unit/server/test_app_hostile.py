"""HttpApp answers any request with JSON, and never with a failure of its own."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from synapse.core.agent import AgentEntry
from synapse.server.app import HttpApp
from synapse.server.asgi import HttpLimits
from tests.conformance.in_memory_service import InMemoryService
from tests.unit.server.exchange import ME, Exchange
from tests.unit.server.test_app import DIALECT, HELLO

METHODS = st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW"])
SEGMENTS = st.sampled_from(["tasks", "send", "cancel", "external", "0", "%00", "%ff", "%2F", "..", "", "{id}", "\xff"])
SERVED = [route.path.replace("{id}", "00000001").replace("{alias}", "other") for route in DIALECT.routes]
# The subscription is left out: it answers with a stream.
PATHS = st.sampled_from([path for path in SERVED if "subscribe" not in path]) | st.lists(SEGMENTS, max_size=4).map(
    lambda segments: "/" + "/".join(segments)
)
QUERIES = st.binary(max_size=20) | st.sampled_from(
    [b"priority=1", b"priority=9", b"limit=-1", b"status=x", b"cursor=zz"]
)
MEDIA_TYPES = st.sampled_from(["application/json", "text/plain", "", "application/x+json", "multipart/form-data"])
BODIES = st.binary(max_size=40) | st.sampled_from([HELLO, b"", b"{}", b"null", b'{"verdict": "retry"}', b"[" * 200])
LENGTHS = st.sampled_from(["", "0", "-5", "99999999999999999999999999", "x", "10"])


@settings(max_examples=400, deadline=None)
@given(method=METHODS, path=PATHS, query=QUERIES, media_type=MEDIA_TYPES, body=BODIES, length=LENGTHS)
async def test_no_request_raises_an_unexpected_error(
    method: str, path: str, query: bytes, media_type: str, body: bytes, length: str
) -> None:
    service = InMemoryService(AgentEntry("synapse-dummy-8190", "dummy", port=8190))
    app = HttpApp(service, [DIALECT], admit=lambda _: ME, limits=HttpLimits(max_body_bytes=150))
    exchange = Exchange(
        method, path, body, query=query, content_type=media_type, content_length=length, last_event_id="x"
    )
    exchange = await exchange.run(app)

    assert exchange.status < 500
    told = json.loads(exchange.body)
    assert exchange.status == 200 or set(told["error"]) == {"code", "message", "hint"}
