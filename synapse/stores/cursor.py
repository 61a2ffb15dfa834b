"""Where a page of tasks ends: the same in every store, opaque to everybody else."""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple, Self

from synapse.core.errors import InvalidRequest
from synapse.stores.rows import micros

_LARGEST: Final = 2**63


class Cursor(NamedTuple):
    """The last change and the number of a task: pages go down in this order."""

    updated_at: int
    number: int

    @classmethod
    def of(cls, updated_at: datetime, number: int) -> Self:
        return cls(micros(updated_at), number)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InvalidRequest."""
        try:
            updated_at, number = map(int, text.split("."))
        except ValueError as error:
            raise _foreign() from error
        if max(abs(updated_at), abs(number)) >= _LARGEST:
            raise _foreign()
        return cls(updated_at, number)

    def text(self) -> str:
        return f"{self.updated_at}.{self.number}"


def _foreign() -> InvalidRequest:
    return InvalidRequest("the cursor is not one of ours", hint="begin again without a cursor")
