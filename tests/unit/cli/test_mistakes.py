"""Typical mistakes on the command line, and the errors that help."""

from __future__ import annotations

from pathlib import Path

import pytest

from synapse.core.agent import AgentEntry
from synapse.registry.files import FileRegistry
from tests.unit.cli.conftest import Cli, HostFactory


@pytest.mark.parametrize(
    ("arguments", "why", "hint"),
    [
        (["list", "--jsno"], "unknown option --jsno", "did you mean --json?  (synapse list --help)"),
        (["keys", "create", "ci", "--expire=30d"], "unknown option --expire", "did you mean --expires?"),
        (["stop", "codex", "--whatsoever"], "unknown option --whatsoever", "synapse stop --help"),
        (["fleet", "status", "extra"], "unexpected argument 'extra'", "synapse fleet status --help"),
        (["keys", "list", "--jso"], "unknown option --jso", "did you mean --json?  (synapse keys list --help)"),
        (["config", "set", "x"], "unexpected argument 'set'", "synapse config --help"),
        (["dummy", "--continue"], "unknown option --continue", "after `--`:  synapse dummy -- --continue"),
        (
            ["dummy", "fix it"],
            "unexpected argument 'fix'",
            "put arguments for dummy itself after `--`:  synapse dummy -- …",
        ),
        (
            ["start", "dummy", "--continue"],
            "unknown option --continue",
            "after `--`:  synapse start dummy -- --continue",
        ),
        (
            ["start", "--name", "bob", "dummy", "--model", "x"],
            "unknown option --model",
            "synapse start dummy -- --model",
        ),
        (["start", "dummy", "fix it"], "unexpected argument 'fix it'", "synapse start dummy -- …"),
        (["start", "dummy", "--nam", "x"], "unknown option --nam", "did you mean --name?  (synapse start --help)"),
        (["start", "scripted"], "`scripted` needs a FILE", "synapse start --help"),
        (["gateway", "--port", "abc"], "--port must be a whole number, not 'abc'", "synapse gateway --help"),
        (
            ["external", "send", "a", "b", "--timeout", "x"],
            "--timeout must be a number of seconds greater than 0, not 'x'",
            "external send --help",
        ),
        (
            ["external", "send", "a", "b", "--timeout=-1"],
            "--timeout must be a number of seconds greater than 0, not '-1'",
            "external send --help",
        ),
        (["push", "list", "--limit", "0"], "--limit must be a whole number from 1 to 999999999, not '0'", "push list"),
        (
            ["push", "list", "--limit", "-3"],
            "--limit must be a whole number from 1 to 999999999, not '-3'",
            "push list",
        ),
        (["push", "list", "--limit", "9" * 20], "--limit must be a whole number from 1", "synapse push list --help"),
        (["logs", "codex", "-n", "-4"], "--lines must be a whole number from 0", "synapse logs --help"),
        (
            ["broadcast", "hi", "--priority", "9"],
            "--priority must be one of 1, 2, 3, 4, 5, not '9'",
            "broadcast --help",
        ),
        (["-x"], "unknown option -x", "synapse --help"),
    ],
)
def test_a_mistyped_option_is_reported_in_plain_words(synapse: Cli, arguments: list[str], why: str, hint: str) -> None:
    ran = synapse(*arguments)

    assert ran.code == 2
    assert ran.err.startswith(f"Error: {why}")
    assert hint in ran.err


@pytest.mark.parametrize("verb", [["status"], ["approve"], ["deny"], ["answer", "--json"]])
def test_an_unknown_id_is_reported_as_a_missing_task(synapse: Cli, start: HostFactory, verb: list[str]) -> None:
    start("codex")

    ran = synapse(*verb, "54241e7e", *(["yes"] if verb[0] == "answer" else []))

    assert ran.code == 3
    assert "no task '54241e7e'" in ran.err + ran.out


@pytest.mark.parametrize("verb", ["status", "approve"])
def test_an_unknown_name_is_reported_as_a_missing_agent(synapse: Cli, start: HostFactory, verb: str) -> None:
    start("codex")

    ran = synapse(verb, "codx")

    assert ran.code == 3
    assert "No agent found matching 'codx'\nDid you mean 'codex'?" in ran.err


@pytest.mark.parametrize("verb", [["approve"], ["deny"], ["answer", "this one"]])
def test_a_task_that_waits_for_a_message_is_answered_with_one(
    synapse: Cli, start: HostFactory, verb: list[str]
) -> None:
    host = start("codex")
    task = host.open({"message": {"role": "user", "parts": [{"type": "text", "text": "choose"}]}})
    host.change(task, status="input_required")
    short = task["id"][:8]

    ran = synapse(verb[0], short, *verb[1:])

    assert ran.code == 7
    assert ran.err == (
        f'Error: task {short} waits for a message, not for a decision\nsynapse send codex-8120 "…" --task {short}\n'
    )


def test_a_gateway_that_does_not_run_cannot_be_stopped(synapse: Cli, start: HostFactory) -> None:
    start("codex")

    ran = synapse("stop", "gateway")

    assert ran.code == 3
    assert ran.err == "Error: no gateway is running\n`synapse start gateway` starts one\n"


@pytest.mark.parametrize("arguments", [["status", "gateway"], ["send", "gateway", "hi"], ["attach", "gateway"]])
def test_verbs_for_agents_name_the_verbs_for_a_gateway(synapse: Cli, start: HostFactory, arguments: list[str]) -> None:
    start("codex")

    ran = synapse(*arguments)

    assert ran.code == 3
    assert "a gateway is not an agent" in ran.err
    assert "`synapse stop gateway`" in ran.err


def test_an_agent_may_be_called_gateway(synapse: Cli, start: HostFactory) -> None:
    start("codex", name="gateway")

    assert synapse("status", "gateway").code == 0


def test_the_log_of_the_gateway_that_runs_is_shown(synapse: Cli, start: HostFactory, home: Path) -> None:
    logs = home / "logs"
    logs.mkdir()
    for port in (8000, 9000):
        (logs / f"synapse-gateway-{port}.log").write_text(f"of {port}\n", encoding="utf-8")
    alive = start("codex").entry
    entry = AgentEntry("synapse-gateway-8000", "gateway", port=8000, pid=alive.pid, pid_started=alive.pid_started)
    FileRegistry(home / "gateways").write(entry)

    assert synapse("logs", "gateway").out == "of 8000\n"


@pytest.mark.parametrize(
    ("keys", "why", "hint"),
    [
        ('profile = "cluade"', "agent 'a': there is no profile 'cluade'", "did you mean 'claude'?"),
        ('profile = "zzzzzzzz"', "agent 'a': there is no profile 'zzzzzzzz'", "profiles: claude, codex, "),
        (
            'profile = "dummy"\nworking_dir = "nowhere"',
            "agent 'a': there is no folder ",
            "'working_dir' starts at the folder",
        ),
    ],
)
def test_a_gateway_does_not_start_with_an_agent_that_can_never_start(
    synapse: Cli, home: Path, keys: str, why: str, hint: str
) -> None:
    file = home / "g.toml"
    file.write_text(f'[[agents]]\nid = "a"\n{keys}\n', encoding="utf-8")

    # The address would be refused next, so that no gateway is started here in any case.
    ran = synapse("gateway", "--config", str(file), "--host", "0.0.0.0")

    assert ran.code == 2
    assert ran.err.startswith(f"Error: {file}: {why}")
    assert hint in ran.err


def test_stop_all_without_agents_says_so(synapse: Cli) -> None:
    ran = synapse("stop", "--all")

    assert ran.code == 0
    assert ran.err == "No agent is running.\n"
    assert synapse("stop", "--all", "--json").json == []


def test_settings_are_shown_as_they_are_written(synapse: Cli) -> None:
    shown = synapse("config").out

    assert "allow_private_webhooks  false" in shown
    assert "instructions            true" in shown


def test_a_current_folder_that_was_removed_is_reported(
    synapse: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    ran = synapse("start", "dummy")

    assert (ran.code, "the current folder no longer exists" in ran.err) == (1, True)
