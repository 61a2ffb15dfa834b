"""An upgrade with running hosts: a host of one version beside commands of another, both ways."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from synapse import __version__
from tests.integration.cli.session import ROOT, Session, session

pytestmark = pytest.mark.integration
OLD = "0.0.9"


@pytest.fixture
def old_package(tmp_path: Path) -> str:
    """A copy of the package that calls itself older; returns the PYTHONPATH that finds it first."""
    folder = tmp_path / "old"
    shutil.copytree(ROOT / "synapse", folder / "synapse", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "bin").mkdir()
    shutil.copy(ROOT / "bin" / "synapse", folder / "bin")
    start = folder / "synapse" / "__init__.py"
    text = start.read_text(encoding="utf-8")
    assert f'"{__version__}"' in text
    start.write_text(text.replace(f'"{__version__}"', f'"{OLD}"'), encoding="utf-8")
    return str(folder)


@pytest.fixture
def here(tmp_path: Path) -> Generator[Session]:
    with session(tmp_path / "h") as opened:
        yield opened


def test_after_an_upgrade_commands_work_with_the_hosts_that_still_run(here: Session, old_package: str) -> None:
    assert here.run("--version", PYTHONPATH=old_package).out == f"synapse {OLD}\n"
    started = here.run("start", "dummy", "--name", "worker", "--no-instructions", "--json", PYTHONPATH=old_package)
    assert started.json["version"] == OLD

    assert here.run("send", "worker", "hello", "--response", "--timeout", "20").out == "echo: hello\n"
    listed = here.run("list")
    examined = here.run("doctor")
    note = f"worker runs {OLD}, this is {__version__}"
    assert f"· {note}  (synapse restart worker)\n" in listed.err
    assert note in " ".join(examined.out.split())

    renewed = here.run("restart", "worker", "--json")
    assert renewed.json["version"] == __version__, renewed
    assert "this is" not in here.run("list").err
    assert here.run("send", "worker", "again", "--response", "--timeout", "20").out == "echo: again\n"


def test_an_older_host_can_be_stopped_and_its_queue_goes_on(here: Session, old_package: str) -> None:
    here.run("start", "dummy", "--name", "worker", "--no-instructions", PYTHONPATH=old_package)
    assert here.run("stop", "worker").code == 0
    queued = here.run("send", "worker", "later", "--queue", "--json", PYTHONPATH=old_package)
    assert queued.code == 0, queued

    here.run("start", "dummy", "--name", "worker", "--no-instructions")

    task_id = queued.json["task"]["id"]
    assert here.run("watch", "--task", task_id).code == 0
    assert here.run("status", task_id, "--json").json["reply"] == "echo: later"


def test_an_older_command_works_with_a_newer_host(here: Session, old_package: str) -> None:
    here.start("worker")

    sent = here.run("send", "worker", "hello", "--response", "--timeout", "20", PYTHONPATH=old_package)

    assert sent.out == "echo: hello\n"
    note = f"· worker runs {__version__}, this is {OLD}"
    assert note in here.run("list", PYTHONPATH=old_package).err
    assert here.run("stop", "worker", PYTHONPATH=old_package).code == 0
