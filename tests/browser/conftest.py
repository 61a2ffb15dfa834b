"""Fixtures of the tests of the dashboard: one browser for all, a machine of its own for each file or test."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.world import World, world


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # As root Chromium refuses its sandbox; the pages are our own.
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        chromium = playwright.chromium.launch(executable_path=os.environ["SYNAPSE_CHROMIUM"], args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def machine(browser: Browser) -> Iterator[World]:
    """A machine for one test."""
    with tempfile.TemporaryDirectory(prefix="sb") as home, world(Path(home), browser) as made:
        yield made
