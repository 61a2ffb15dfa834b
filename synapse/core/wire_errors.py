"""What can go wrong between a caller and us before anything is asked of the agent; the same tree as `core.errors`.

InvalidRequest
├── InvalidField              one field of the request, by its name
├── MalformedJson · MalformedCall
├── VersionNotSupported · ExtensionRequired
└── UnsupportedOperation      PushNotSupported · ExtendedCardMissing
"""

from __future__ import annotations

from collections.abc import Iterable

from synapse.core.errors import InvalidRequest, UnsupportedOperation


class InvalidField(InvalidRequest):
    """A field of the request is missing, or is not what it should be."""

    code = "invalid_field"

    def __init__(self, field: str, why: str, *, hint: str = "") -> None:
        self.field = field
        self.why = why
        super().__init__(f"{field}: {why}" if field else why, hint=hint)


class MalformedJson(InvalidRequest):
    """The body is not JSON."""

    code = "malformed_json"


class MalformedCall(InvalidRequest):
    """The body is JSON, but not a JSON-RPC 2.0 call."""

    code = "malformed_call"


class VersionNotSupported(InvalidRequest):
    """The protocol version that the request names is not spoken here."""

    code = "version_not_supported"

    def __init__(self, version: str, spoken: Iterable[str]) -> None:
        super().__init__(f"A2A version '{version}' is not supported", hint="this agent speaks " + " and ".join(spoken))


class ExtensionRequired(InvalidRequest):
    """The agent demands an extension that the request does not name."""

    code = "extension_required"

    def __init__(self, uris: Iterable[str]) -> None:
        missing = ", ".join(sorted(uris))
        super().__init__(f"this agent requires the extension {missing}", hint="name it in the A2A-Extensions header")


class PushNotSupported(UnsupportedOperation):
    """This agent sends no push notifications."""

    code = "push_not_supported"


class ExtendedCardMissing(UnsupportedOperation):
    """This agent has no extended card."""

    code = "extended_card_missing"
