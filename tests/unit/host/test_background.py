"""The command line of a host, and its restart with that command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from synapse.cli.attach import control_key
from synapse.cli.start import launch_of, start_command
from synapse.client.hosts import not_responding
from synapse.core.agent import AgentEntry
from synapse.core.errors import InvalidSettings, UnsupportedOperation
from synapse.host.background import HostLaunch

ENTRY = AgentEntry("synapse-codex-8121", "codex", name="reviewer", port=8121, pid=1, working_dir="/tmp")


def words_of(launch: HostLaunch) -> list[str]:
    command = launch.command()
    return command[command.index("synapse.cli.main") + 1 :]


def test_a_host_is_started_without_a_terminal() -> None:
    launch = HostLaunch(
        verb=["codex"], name="reviewer", port=8121, instructions=False, mcp=False, arguments=["--resume"]
    )

    assert words_of(launch) == [
        *("codex", "--headless", "--json", "--name", "reviewer", "--port", "8121", "--no-instructions"),
        *("--no-mcp", "--", "--resume"),
    ]


def test_a_folder_named_like_the_package_is_not_imported() -> None:
    assert "-P" in HostLaunch(verb=["codex"]).command()


def test_an_agent_is_started_again_as_it_was() -> None:
    words = ["--model", "x", "--headless"]
    first = HostLaunch(verb=["codex"], name="reviewer", instructions=False, mcp=False, arguments=words)

    again = launch_of(ENTRY, first.command())

    assert (again.verb, again.name, again.port, again.folder) == (["codex"], "reviewer", 8121, "/tmp")
    assert again.arguments == words
    assert not again.instructions
    assert not again.mcp
    assert launch_of(ENTRY, HostLaunch(verb=["codex"], arguments=["--no-mcp"]).command()).mcp


def test_a_scripted_agent_is_started_again_with_its_script() -> None:
    first = HostLaunch(verb=["scripted", "echo.toml"])

    assert list(launch_of(ENTRY, first.command()).verb) == ["scripted", "echo.toml"]


def test_an_agent_in_a_terminal_cannot_be_restarted_from_here() -> None:
    with pytest.raises(UnsupportedOperation, match="runs in a terminal"):
        launch_of(ENTRY, ["python", "synapse", "codex", "--", "--headless"])


def test_an_agent_that_ran_in_a_terminal_is_started_again_there() -> None:
    with pytest.raises(UnsupportedOperation, match="ran in a terminal") as refused:
        launch_of(ENTRY, ["python", "synapse", "codex"], has_ended=True)

    assert refused.value.hint == "start it again there: synapse codex --name reviewer --resume"


def test_a_launch_that_goes_on_is_the_same_launch() -> None:
    launch = HostLaunch(verb=["codex"], arguments=["--resume"])

    assert replace(launch, resume=True) == launch
    assert words_of(replace(launch, resume=True)) == [*words_of(launch)[:3], "--resume", "--", "--resume"]


def test_a_person_is_told_how_to_start_an_agent_on_another_port_in_its_folder() -> None:
    launch = HostLaunch(verb=["codex"], name="reviewer", port=8121, arguments=["--say", "a b"], folder="/a folder")
    here = HostLaunch(verb=["scripted", "echo.toml"], port=8180, instructions=False, mcp=False, folder=str(Path.cwd()))

    assert start_command(launch) == "cd '/a folder' && synapse start codex --name reviewer -- --say 'a b'"
    assert start_command(here) == "synapse start scripted echo.toml --no-instructions --no-mcp"


@pytest.mark.parametrize("name", ["ctrl-]", "Ctrl-]", "c-]", "^]", "]"])
def test_a_detach_key_can_be_written_in_several_ways(name: str) -> None:
    assert control_key(name) == "]"


@pytest.mark.parametrize("name", ["", "ctrl-", "ctrl-ab", "ctrl-1", "f1"])
def test_an_invalid_detach_key_is_refused(name: str) -> None:
    with pytest.raises(InvalidSettings):
        control_key(name)


def test_a_hint_keeps_the_name() -> None:
    with pytest.raises(UnsupportedOperation) as refused:
        launch_of(ENTRY, ["python", "synapse", "codex"])

    assert refused.value.hint.endswith("synapse start codex --name reviewer")
    assert "--name reviewer" in not_responding(ENTRY).hint
