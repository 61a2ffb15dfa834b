"""What tests with real programs and servers share."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from synapse.external.agents import Externals
from synapse.external.client import open_externals
from tests.fakes.strangers import Stranger, stranger_at_home


@pytest.fixture
def stranger() -> Generator[Stranger]:
    """A server on loopback that is not ours."""
    with stranger_at_home() as stranger:
        yield stranger


@pytest.fixture
def externals(tmp_path: Path) -> Externals:
    """The agents elsewhere that a user has added; none yet."""
    return open_externals(tmp_path)
