"""Fixtures of the tests of the command line: a home of their own, fake hosts in it, and `synapse …` as a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from synapse.cli.main import main
from tests.samples.commands import Ran
from tests.unit.cli.fake_host import FakeHost

Cli = Callable[..., Ran]
HostFactory = Callable[..., FakeHost]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SYNAPSE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    for variable in ("SYNAPSE_AGENT_ID", "SYNAPSE_SOCKET"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def start(home: Path) -> Iterator[HostFactory]:
    with ExitStack() as hosts:

        def start_host(agent_type: str = "codex", port: int = 8120, name: str = "") -> FakeHost:
            return hosts.enter_context(FakeHost(home, agent_type, port, name).serving())

        yield start_host


@pytest.fixture
def synapse(home: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*arguments: str) -> Ran:
        capsys.readouterr()
        try:
            code = main(["synapse", *arguments])
        except SystemExit as ended:
            code = int(str(ended.code or 0))
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run


def become(agent: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the rest of the test run inside that agent, as its shell commands do."""
    monkeypatch.setenv("SYNAPSE_AGENT_ID", agent.entry.agent_id)
    monkeypatch.setenv("SYNAPSE_SOCKET", agent.entry.socket)
