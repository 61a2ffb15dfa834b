"""These tests need the five CLIs: scripts/real-clis installs them and runs this folder."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-terminals",
        action="store_true",
        help="every row in each of the twelve kinds of terminals, instead of one row in six: about half an hour",
    )


@pytest.fixture(autouse=True)
def real_clis() -> None:
    if not os.environ.get("SYNAPSE_REAL_CLIS"):
        pytest.skip("run scripts/real-clis")
