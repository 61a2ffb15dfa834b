"""What whoever keeps a gateway running asks it: its figures, and what it serves.

GET /metrics        for Prometheus
GET /openapi.json   what is served over HTTP, for programs
GET /docs           the same, for people
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from synapse.core.auth_methods import AuthMethods
from synapse.core.requests import GetFigures
from synapse.dialects import proto_json
from synapse.dialects.dialect import Call, CallRoute, Dialect, DocumentRoute, WireAnswer, WireRequest
from synapse.dialects.hub.errors import encode_error
from synapse.runtime.metrics import MEDIA_TYPE, Metrics

OPERATIONS: Final = "operations"
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
        from synapse.runtime.openapi import openapi_document  # noqa: PLC0415 - see above

        return openapi_document([*dialects, ours], methods, url)

    def openapi(_wire: WireRequest) -> WireAnswer:
        return WireAnswer(200, proto_json.to_json(document()))

    def page(_wire: WireRequest) -> WireAnswer:
        from synapse.runtime.openapi_page import openapi_page  # noqa: PLC0415 - see above

        return WireAnswer(200, openapi_page(document()), (_ONLY_STYLE,), media_type=b"text/html; charset=utf-8")

    def ask_metrics(_wire: WireRequest) -> Call:
        return Call(GetFigures(), metrics.text)

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
