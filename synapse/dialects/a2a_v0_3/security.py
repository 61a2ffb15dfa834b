"""How a card of A2A 0.3 says what a caller must bring: the schemes of OpenAPI 3."""

from __future__ import annotations

from typing import Any

from synapse.core.auth_methods import API_KEY_HEADER, AuthMethods

Wire = dict[str, Any]


def security_fields(methods: AuthMethods) -> Wire:
    """`securitySchemes` and `security`: one of them is enough. Nothing when nothing is asked for."""
    schemes = _schemes(methods)
    scopes = {"jwt": list(methods.jwt_scopes)}
    requirements = [{name: scopes.get(name, [])} for name in schemes if name != "custom"]
    fields: Wire = {"securitySchemes": schemes, "security": requirements}
    return {name: value for name, value in fields.items() if value}


def _schemes(methods: AuthMethods) -> Wire:
    schemes: Wire = {}
    if methods.api_keys:
        schemes["apiKey"] = {
            "type": "apiKey",
            "in": "header",
            "name": API_KEY_HEADER,
            "description": "An API key of this gateway",
        }
        schemes["apiKeyBearer"] = {
            "type": "http",
            "scheme": "bearer",
            "description": "The same API key as a bearer token",
        }
    if methods.jwt_issuer:
        schemes["jwt"] = {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "JWT",
            "description": f"An access token issued by {methods.jwt_issuer}",
        }
    if methods.custom:
        schemes["custom"] = {"type": "http", "scheme": "custom", "description": methods.custom}
    return schemes
