"""What callers from elsewhere are told of a store that fails: that it does, and nothing of this machine's files."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

from synapse.core.errors import StoreFailed

log = logging.getLogger(__name__)


@contextmanager
def discreet() -> Generator[None]:
    """Log what a StoreFailed says, and say it without the paths and commands that are in it."""
    try:
        yield
    except StoreFailed as error:
        log.error("store_failed", extra={"error": str(error), "code": error.code})  # noqa: TRY400 - the sentence says it all
        raise StoreFailed("the gateway's store cannot do it now", hint="try again in a while") from error
