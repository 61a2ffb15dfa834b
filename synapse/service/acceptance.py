"""What an agent takes in: parts of which types, and whether a message id names one message."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from synapse.core.errors import UnsupportedMediaType
from synapse.core.message import DataPart, FilePart, Message, Role, TextPart, media_type_of

TEXT: Final = ("text/plain",)
MODES: Final = (*TEXT, "application/json", "application/octet-stream")
"""What cards say that an agent gives, and at least takes: texts, data, and files, which lie beside the message."""
ANY_TYPE: Final = "*/*"
"""What the card of an agent that takes everything says last, as a media range (RFC 9110 §12.5.1)."""
_UNNAMED: Final[dict[type, str]] = dict(zip((TextPart, DataPart, FilePart), MODES, strict=True))
"""What a part is that does not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What one agent takes. Most take parts of any type, and know a message again by its id."""

    media_types: tuple[str, ...] = ()
    """The types of parts that it takes; empty takes all."""
    cue_ids: re.Pattern[str] | None = None
    """Ids that are cues and name no message: the same one again is another message. Conformance kits send such."""

    @property
    def as_text(self) -> str:
        """The types as an agent's entry in the registry has them."""
        return " ".join(self.media_types)

    def check(self, message: Message) -> None:
        """Raise UnsupportedMediaType for a part that the agent does not take."""
        for media_type in self._foreign_in(message):
            raise UnsupportedMediaType(
                f"incompatible content type: parts of '{media_type}' are not supported by this agent",
                hint=f"it takes {', '.join(self.media_types)}",
            )

    def takes(self, message: Message) -> bool:
        """Whether the agent takes all of its parts."""
        return not self._foreign_in(message)

    def _foreign_in(self, message: Message) -> Sequence[str]:
        if not self.media_types:
            return ()
        named = (media_type_of(part) or _UNNAMED[type(part)] for part in message.parts)
        return [media_type for media_type in named if media_type not in self.media_types]

    def digest(self, message: Message) -> str:
        """What a message is known by when it comes again; empty when it is always a new one."""
        is_cue = self.cue_ids is not None and self.cue_ids.search(message.message_id) is not None
        return "" if is_cue else message_digest(message)


ANYTHING: Final = Acceptance()


def shown_modes(media_types: Sequence[str]) -> tuple[str, ...]:
    """What the card of an agent says that takes these types; none means all."""
    # Types by name come first: some readers look for theirs and know no ranges.
    return tuple(media_types) or (*MODES, ANY_TYPE)


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
