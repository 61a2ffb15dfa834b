"""What holds for all unit tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def a_slow_machine_is_not_logged() -> Iterator[None]:
    """asyncio's debug mode logs each step that took long: on a busy machine any of them, and tests read the log."""
    log = logging.getLogger("asyncio")
    log.addFilter(_tells_more_than_slowness)
    yield
    log.removeFilter(_tells_more_than_slowness)


def _tells_more_than_slowness(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Executing ")
