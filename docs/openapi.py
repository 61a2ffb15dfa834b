"""The OpenAPI document of a gateway, as it serves it; `docs.generate` writes it down."""

from __future__ import annotations

import json

from synapse.core.agent import AgentEntry
from synapse.core.auth_methods import AuthMethods
from synapse.dialects.hub.routes import hub_dialect
from synapse.runtime.gateway_cards import GatewayCards
from synapse.runtime.gateway_config import GatewayConfig
from synapse.runtime.gateway_dialects import gateway_dialects
from synapse.runtime.gateway_discovery import status_dialect
from synapse.runtime.gateway_operations import operations_dialect
from synapse.runtime.metrics import Metrics
from synapse.runtime.openapi import openapi_document
from synapse.transports.web_names import Addresses


def openapi_text() -> str:
    """The document, whole, with API keys as the only credentials."""
    url, methods = "http://localhost:8000", AuthMethods(api_keys=True)
    cards = GatewayCards(addresses=Addresses(url), methods=methods, config_of=GatewayConfig().agent)
    status = status_dialect(AgentEntry("synapse-gateway-8000", "gateway"))
    served = gateway_dialects(cards, hub_dialect(lambda _: "", methods), status)
    dialects = [*served, operations_dialect(Metrics(), served, methods, url)]
    return json.dumps(openapi_document(dialects, methods, url), indent=1, ensure_ascii=False) + "\n"
