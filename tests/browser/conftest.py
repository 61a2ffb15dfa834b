"""Fixtures of the tests of the dashboard: one browser for all, a machine of its own for each file or test."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.world import PATIENCE_MS, World, world

expect.set_options(timeout=PATIENCE_MS)


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
    """A machine for one test. A fault of a page that the test does not expect fails it."""
    with tempfile.TemporaryDirectory(prefix="sb") as home, world(Path(home), browser) as made:
        yield made
        made.check_faults()


@pytest.fixture(scope="module")
def machine_of_file(browser: Browser) -> Iterator[World]:
    """The machine that `shared` hands to the tests of one file."""
    with tempfile.TemporaryDirectory(prefix="sb") as home, world(Path(home), browser) as made:
        yield made


@pytest.fixture
def shared(machine_of_file: World) -> Iterator[World]:
    """A machine for all tests of a file; each has browsers of its own, and answers for their faults."""
    yield machine_of_file
    machine_of_file.close_pages()
    machine_of_file.check_faults()
