"""kill -9 at every point of a request that waits for a late answer: it ends once, with the answer that is stored."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from synapse.core.task import TaskState
from synapse.tasks.deferral import WAITING_FOR_REPLY
from tests.integration.recovery.crashing_host import lines
from tests.integration.recovery.journal_file import all_tasks

pytestmark = pytest.mark.integration

DEFERRING_HOST = Path(__file__).with_name("deferring_host.py")
FEWEST_POINTS = 20


def test_a_request_ends_with_the_answer_that_was_stored_wherever_its_host_is_killed() -> None:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="synapse-lives-", dir=memory) as folder:
        done = subprocess.run(
            [sys.executable, "-P", str(DEFERRING_HOST), folder], capture_output=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        places = [place for place in Path(folder).iterdir() if place.is_dir()]
        assert len(places) > FEWEST_POINTS
        between = [place.name for place in places if is_as_it_must_be(place)]
        assert between, "no host was killed between the ends of the message and of the request"


def is_as_it_must_be(place: Path) -> bool:
    """Checks what two lives left; returns True when the first ended between the ends of message and request."""
    left = {kind: rest for kind, *rest in (line.split("|") for line in lines(place / "left"))}
    tasks = all_tasks(place / "store.db")
    requests = [task for task in tasks if task.queued and not task.delivers]
    if not requests:
        return False
    (request,) = requests
    messages, replies = [task for task in tasks if task.delivers], lines(place / "replies")
    state, reason, replied = left["request"]
    if left.get("message", [""])[0] == "completed":
        assert (request.state, request.artifacts[0].text) == (TaskState.COMPLETED, "it says: yes"), place.name
        assert replies == ([] if replied else ["t-1|it says: yes|False"]), place.name
    elif reason == WAITING_FOR_REPLY:
        assert (request.state, request.reason) == (TaskState.FAILED, "agent_exited"), place.name
        assert [line.endswith("|True") for line in replies] == [True], place.name
    # The answer reaches the agent once: as the message that the first life opened, or that the second did.
    wait = next((task for task in tasks if not task.queued), None)
    if wait is not None and wait.delivered_as:
        assert [task.id for task in messages] == [wait.delivered_as], place.name
    return left.get("message", [""])[0] == "completed" and state == "working"
