"""These tests need the five CLIs: scripts/real-clis installs them and runs this folder."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def real_clis() -> None:
    if not os.environ.get("SYNAPSE_REAL_CLIS"):
        pytest.skip("run scripts/real-clis")
