"""The OpenAPI document of a gateway, as it serves it; `docs.generate` writes it down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

from synapse.auth.sessions import LONGEST, SessionFile
from synapse.config.process import SystemClock
from synapse.core.agent import AgentEntry
from synapse.core.caller import AuthMethods
from synapse.dialects.dashboard.routes import dashboard_dialect
from synapse.dialects.hub.routes import hub_dialect
from synapse.gateway.cards import GatewayCards, status_dialect
from synapse.gateway.config import GatewayConfig
from synapse.gateway.mcp import mcp_dialect
from synapse.gateway.metrics import Metrics
from synapse.gateway.openapi import openapi_document, operations_dialect
from synapse.gateway.routes import gateway_dialects
from synapse.gateway.service import StreamLimit
from synapse.gateway.sessions import SessionPages
from synapse.server.middleware import Addresses


def openapi_text() -> str:
    """The document, whole, with API keys as the only credentials."""
    url, methods = "http://localhost:8000", AuthMethods(api_keys=True)
    cards = GatewayCards(addresses=Addresses(url), methods=methods, config_of=GatewayConfig().agent)
    status = status_dialect(AgentEntry("synapse-gateway-8000", "gateway"))
    mcp = mcp_dialect(lambda _: "", lambda _: None, StreamLimit(1).acquire, most_wait=1)
    clock = SystemClock()
    sessions = SessionFile(Path(), clock)
    pages = SessionPages(sessions, clock, url=url, cookie="", idle=LONGEST, max_body_bytes=0, refuse_link=_no_link)
    page = dashboard_dialect(lambda _: "")
    served = gateway_dialects(cards, hub_dialect(lambda _: "", methods), mcp, page, pages.dialect(), status)
    dialects = [*served, operations_dialect(Metrics(), served, methods, url)]
    return json.dumps(openapi_document(dialects, methods, url), indent=1, ensure_ascii=False) + "\n"


def _no_link() -> NoReturn:
    raise NotImplementedError("the document makes no links")
