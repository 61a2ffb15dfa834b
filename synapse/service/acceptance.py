"""What an agent takes in: parts of which types, and whether a message id names one message."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from synapse.core.errors import UnsupportedMediaType
from synapse.core.message import Message, Role, TextPart

MODES: Final = ("text/plain", "application/json", "application/octet-stream")
"""What cards say that an agent takes and gives: texts, data, and files, which lie beside the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What one agent takes. Most take parts of any type, and know a message again by its id."""

    media_types: tuple[str, ...] = ()
    """The types of its parts; empty takes all."""
    cue_ids: re.Pattern[str] | None = None
    """Ids that are cues and name no message: the same one again is another message. Conformance kits send such."""

    def check(self, message: Message) -> None:
        """Raise UnsupportedMediaType for a part that the agent does not take; a part without a type is taken."""
        if not self.media_types:
            return
        for part in message.parts:
            media_type = part.media_type.partition(";")[0].strip().lower()
            if media_type and media_type not in self.media_types:
                raise UnsupportedMediaType(
                    f"incompatible content type: parts of '{part.media_type}' are not supported by this agent",
                    hint=f"it takes {', '.join(self.media_types)}",
                )

    def digest(self, message: Message) -> str:
        """What a message is known by when it comes again; empty when it is always a new one."""
        is_cue = self.cue_ids is not None and self.cue_ids.search(message.message_id) is not None
        return "" if is_cue else message_digest(message)


ANYTHING: Final = Acceptance()


def message_digest(message: Message) -> str:
    """The same for the same role and parts, in every version of Synapse: digests are kept in the store."""
    said = _plainly(message) or repr((message.role, message.parts))
    return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()[:32]


def _plainly(message: Message) -> str:
    """What `repr` says of nearly every message, in a fifth of its time; nothing for others."""
    match message.parts:
        case (TextPart() as part,) if not (part.name or part.media_type or part.metadata):
            text = f"TextPart(text={part.text!r}, name='', media_type='', metadata={{}})"
            return f"({_ROLES[message.role]}, ({text},))"
        case _:
            return ""


_ROLES: Final = {role: repr(role) for role in Role}
