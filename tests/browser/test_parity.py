"""Every control that docs/reference/parity.md names is in the page, by its role and its name."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.architecture.parity_table import Parity, parities
from tests.architecture.source_tree import ROOT
from tests.browser.program_agent import program
from tests.browser.world import ASKER, World, go, look

DEAF = ROOT / "tests" / "agents" / "deaf.py"
ALWAYS = ASKER.replace('"allow: Yes", "deny: No"', '"allow: Yes", "allow_always: Yes, always", "deny: No"')


def find(page: Page, one: Parity, task: str) -> None:
    """Waits until the page shows the control."""
    agents = {"#/agents/AGENT": "ada", "textbox Your answer to AGENT": "namer", "link user to AGENT": "asker"}
    agent = agents.get(one.address) or agents.get(f"{one.role} {one.name}") or "ada"
    go(page, one.address.replace("AGENT", agent).replace("TASK", task))
    name = re.escape(one.name.replace("AGENT", agent))
    control = page.locator(f"role={one.role}[name=/{name}/]").first
    expect(control, f"{one.what}: {one.role} “{one.name}” at {one.address}").to_be_visible()


@pytest.fixture
def task(machine: World) -> str:
    """Starts agents that need a person in every way, and returns the id of a task that is not over."""
    machine.scripted("asker", ALWAYS)
    machine.scripted("namer")
    machine.scripted("answerer")
    machine.dummy("ada")
    machine.send("namer", "name it")
    machine.send("answerer", "hello")
    return machine.send("asker", "run it")


def test_the_page_has_what_the_commands_have(machine: World, task: str) -> None:
    with program(machine, "deaf", DEAF, "echo = 0.2\nproof = 0.3"):
        machine.send("deaf", "are you there?")
        page = machine.page()
        for one in parities():
            find(page, one, task)
        go(page, "#/inbox")
        look(page, "needs-of-every-kind")
