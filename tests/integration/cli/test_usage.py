"""What an agent's turns cost, from the program's own file to people and programs; and never to other agents."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.integration.cli.session import PATIENCE, ROOT, Session, session
from tests.integration.waiting import until
from tests.samples.ports import own_port

pytestmark = pytest.mark.integration

PROFILE = """
title = "Spender"
command = ["spender"]
ports = [8190, 8199]
limit_bytes = 3800
[signals]
adapter = "copilot"
[prompt]
pattern = '^> (?P<text>.*)$'
at_cursor = true
[answer]
echo = '^> '
"""
CARDS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
TOKENS = {"input": 101, "output": 21, "cache_read": 1001, "cache_write": 0, "reasoning": 7, "total": 1123}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Session]:
    with session(tmp_path / "h") as opened:
        profiles = tmp_path / "config" / "synapse" / "profiles"
        profiles.mkdir(parents=True)
        (profiles / "spender.toml").write_text(PROFILE, encoding="utf-8")
        # A program of its own, because its `--help` is read too.
        program = tmp_path / "bin" / "spender"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT}/tests/agents/spender.py "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        opened.environ |= {
            "HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "PATH": f"{program.parent}:{opened.environ['PATH']}",
        }
        yield opened


def start(here: Session) -> dict[str, Any]:
    ran = here.run("start", "spender", "--name", "ada", "--port", str(own_port()), "--no-instructions", "--json")
    assert ran.code == 0, ran
    agent: dict[str, Any] = ran.json
    return agent


def ask(here: Session) -> str:
    asked = here.run("send", "ada", "spend something", "--response", "--json", "--timeout", "20")
    assert asked.json["receipt"] == "answered", asked
    task: str = asked.json["task"]["id"]
    return task


def requests_of(here: Session, *words: str) -> int:
    count: int = here.run("usage", "--json", *words).json["total"]["requests"]
    return count


def test_a_turn_is_counted_for_its_task_and_its_agent(here: Session) -> None:
    start(here)
    first, second = ask(here), ask(here)

    until(lambda: requests_of(here) == 2, "the counts")
    by_task = here.run("usage", "--by", "task", "--json").json["rows"]
    assert {row["task"] for row in by_task} == {first, second}
    assert [row["tokens"] for row in by_task] == [TOKENS, TOKENS]
    (listed,) = here.run("list", "--json").json
    assert (listed["usage"]["today"]["requests"], listed["usage"]["total"]["requests"]) == (2, 2)
    assert "usage    2.2k tokens today, 2.2k in all  (synapse usage ada)" in here.run("status", "ada").out

    here.run("stop", "ada")
    assert requests_of(here, "ada") == 2


def test_an_agent_that_is_started_again_goes_on_counting(here: Session) -> None:
    start(here)
    ask(here)
    until(lambda: requests_of(here) == 1, "the counts")
    assert here.run("restart", "ada").code == 0
    (listed,) = here.run("list", "--json").json
    assert listed["usage"]["total"]["requests"] == 1

    ask(here)
    until(lambda: requests_of(here) == 2, "the counts")


def test_a_usage_file_that_cannot_be_written_harms_no_turn(here: Session) -> None:
    (here.home / "usage.db").mkdir()
    start(here)
    ask(here)

    assert here.run("status", "ada").code == 0
    assert here.run("usage").code != 0


def test_neither_cards_nor_tasks_of_a2a_tell_what_agents_cost(here: Session) -> None:
    port = start(here)["port"]
    task = ask(here)
    until(lambda: requests_of(here) == 1, "the counts")
    url = f"http://127.0.0.1:{port}"

    answers = [urlopen(f"{url}{path}", timeout=PATIENCE).read().decode() for path in CARDS]
    for version, method in (("1.0", "GetTask"), ("0.3", "tasks/get")):
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": task}}
        headers = {"Content-Type": "application/json", "A2A-Version": version}
        asked = Request(f"{url}/", json.dumps(call).encode(), headers)
        answers.append(urlopen(asked, timeout=PATIENCE).read().decode())

    assert all("spent" in answer for answer in answers[2:]), answers
    for answer in answers:
        assert "1123" not in answer
        assert not any(word in answer.lower() for word in ("usage", "cost", "cache_read", "session"))
