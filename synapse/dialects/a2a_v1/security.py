"""How a card of A2A 1.0 says what a caller must bring (1.0 §4.5)."""

from __future__ import annotations

from typing import Any

from synapse.core.auth_methods import API_KEY_HEADER, AuthMethods

Wire = dict[str, Any]


def security_fields(methods: AuthMethods) -> Wire:
    """`securitySchemes` and `securityRequirements`: one of them is enough. Nothing when nothing is asked for."""
    schemes = _schemes(methods)
    scopes = {"jwt": list(methods.jwt_scopes)}
    # Each element of the list is an alternative.
    requirements = [{"schemes": {name: {"list": scopes.get(name, [])}}} for name in schemes if name != "custom"]
    fields: Wire = {"securitySchemes": schemes, "securityRequirements": requirements}
    return {name: value for name, value in fields.items() if value}


def _schemes(methods: AuthMethods) -> Wire:
    schemes: Wire = {}
    if methods.api_keys:
        schemes["apiKey"] = {
            "apiKeySecurityScheme": {
                "description": "An API key of this gateway",
                "location": "header",
                "name": API_KEY_HEADER,
            }
        }
        schemes["apiKeyBearer"] = {
            "httpAuthSecurityScheme": {"description": "The same API key as a bearer token", "scheme": "Bearer"}
        }
    if methods.jwt_issuer:
        schemes["jwt"] = {
            "httpAuthSecurityScheme": {
                "description": f"An access token issued by {methods.jwt_issuer}",
                "scheme": "Bearer",
                "bearerFormat": "JWT",
            }
        }
    if methods.custom:
        # The standard has no scheme for what an owner made up; this one only carries the description.
        schemes["custom"] = {"httpAuthSecurityScheme": {"description": methods.custom, "scheme": "Custom"}}
    return schemes
