"""The command as a whole: verbs, help, exit codes, and errors before any host is asked."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import synapse as package
from synapse.cli import exit_codes
from synapse.cli.main import VERBS, find_verb, main, wants_json
from synapse.config.settings import profile_names
from synapse.core import errors
from tests.unit.cli.conftest import Cli

ROOT = Path(package.__file__).parents[1]
WITH_ARGPARSE = sorted(VERBS.keys() - {"send", "reply", "help"})


def test_every_error_has_an_exit_code_that_is_explained() -> None:
    assert errors.BY_CODE.keys() == exit_codes.BY_ERROR.keys()
    assert set(exit_codes.BY_ERROR.values()) <= exit_codes.MEANINGS.keys()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (2, errors.InvalidRequest),
        (3, errors.AgentNotFound),
        (3, errors.TaskNotFound),
        (3, errors.UnknownProfile),
        (4, errors.AmbiguousTarget),
        (5, errors.WaitTimedOut),
        (6, errors.WaitingForPerson),
        (7, errors.AccessDenied),
        (7, errors.QueueFull),
        (8, errors.AgentNotResponding),
    ],
)
def test_the_exit_codes_are_the_promised_ones(code: int, error: type[errors.SynapseError]) -> None:
    assert exit_codes.exit_code(error.code) == code


def test_an_error_that_only_a_newer_host_knows_is_a_failure() -> None:
    assert exit_codes.exit_code("something_new") == exit_codes.FAILED


def test_every_verb_has_a_module(synapse: Cli) -> None:
    for verb in VERBS:
        assert callable(find_verb([verb]))


@pytest.mark.parametrize("verb", WITH_ARGPARSE)
def test_the_help_of_a_verb_has_examples(synapse: Cli, verb: str) -> None:
    ran = synapse(verb, "--help")

    assert ran.code == 0
    assert "examples:" in ran.out
    assert f"synapse {verb}" in ran.out.partition("examples:")[2]


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize("verb", WITH_ARGPARSE)
def test_the_examples_of_a_verb_fit_the_terminal(
    synapse: Cli, verb: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, wide = synapse(verb, "--help").out.partition("examples:")
    monkeypatch.setattr("synapse.cli.parser.line_width", lambda: columns)

    _, _, narrow = synapse(verb, "--help").out.partition("examples:")

    # Only a command stays whole, so that it can be copied.
    assert all(line.startswith("  synapse ") for line in narrow.splitlines() if len(line) > columns)
    assert not any(re.search(r"\S {2,}\S", line) for line in narrow.splitlines() if len(line) > columns)
    assert wide.split() == narrow.split()


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_the_overview_names_verbs_exit_codes_and_the_guide(synapse: Cli, arguments: list[str]) -> None:
    ran = synapse(*arguments)

    assert ran.code == 0
    assert all(re.search(rf"^  {verb} ", ran.out, re.MULTILINE) for verb in VERBS)
    assert all(meaning in ran.out for meaning in exit_codes.MEANINGS.values())
    assert "synapse guide" in ran.out.splitlines()[-1]


def test_help_of_a_verb_by_name(synapse: Cli) -> None:
    assert synapse("help", "send").out.startswith("usage: synapse send")
    assert synapse("help", "stop").out.startswith("usage: synapse stop")


def test_the_version_stands_in_one_place(synapse: Cli) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "synapse/__init__.py"
    assert synapse("--version").out == f"synapse {package.__version__}\n"


@pytest.mark.parametrize(("typed", "meant"), [("cluade", "claude"), ("sned", "send"), ("lst", "list")])
def test_the_error_for_an_unknown_word_suggests_a_verb_or_a_profile(synapse: Cli, typed: str, meant: str) -> None:
    ran = synapse(typed)

    assert ran.code == 3
    assert ran.err == f"Error: '{typed}' is neither a verb nor a profile\nDid you mean '{meant}'?  (synapse --help)\n"


def test_the_error_for_an_unknown_word_lists_the_profiles(synapse: Cli) -> None:
    assert "dummy" in synapse("start", "xxxxxxxxxxxx").err


def test_wrong_options_of_a_verb_are_one_json_object(synapse: Cli) -> None:
    ran = synapse("list", "--json", "--bogus")

    assert (ran.code, ran.json["error"]["code"]) == (2, "invalid_request")
    assert ran.json["error"]["hint"] == "synapse list --help"


def test_json_after_the_dashes_belongs_to_the_program() -> None:
    assert wants_json(["list", "--json"])
    assert not wants_json(["claude", "--", "--json"])


def test_ctrl_c_prints_no_traceback(synapse: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("synapse.cli.agents.run_list", interrupt)

    assert main(["synapse", "list"]) == exit_codes.INTERRUPTED


def test_guide_is_the_primer(synapse: Cli) -> None:
    assert synapse("guide").out.startswith("[Synapse A2A Protocol Instructions]\n")


def test_config_shows_each_value_with_its_source(synapse: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNAPSE_QUEUE_LIMIT", "50")

    settings = synapse("config", "--json").json

    assert settings["queue_limit"] == {"value": 50, "source": "environment SYNAPSE_QUEUE_LIMIT"}
    assert settings["keep_days"] == {"value": 30, "source": "default"}
    assert "environment SYNAPSE_QUEUE_LIMIT" in synapse("config").out


def test_broken_settings_name_the_file_and_the_key(synapse: Cli, home: Path) -> None:
    (home / "config" / "synapse").mkdir(parents=True)
    (home / "config" / "synapse" / "config.toml").write_text('queue_limit = "many"\n', encoding="utf-8")

    ran = synapse("config")

    assert ran.code == 2
    assert f"{home}/config/synapse/config.toml: 'queue_limit' must be a whole number" in ran.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_verbs_profiles_and_options(synapse: Cli, shell: str) -> None:
    script = synapse("completion", shell).out

    assert "broadcast" in script
    assert "gemini" in script
    assert "reply-to" in script
    assert "--continue" not in script


def test_external_agents_need_an_action(synapse: Cli) -> None:
    assert synapse("external").code == 2
    assert synapse("external", "list", "--json").json == []
    assert synapse("external", "send", "nobody", "hi").code == 3


def test_a_mistyped_verb_is_named_whatever_follows(synapse: Cli) -> None:
    for ran in (synapse("sned", "codex", "hello", "--response"), synapse("sned", "--help"), synapse("help", "sned")):
        assert ran.code == 3
        assert "Did you mean 'send'?" in ran.err


@pytest.mark.parametrize("arguments", [["cancel", "abcdef"], ["send", "codex", "x", "--priority", "9"]])
def test_an_error_names_the_next_step(synapse: Cli, arguments: list[str]) -> None:
    assert synapse(*arguments, "--json").json["error"]["hint"]


def test_an_error_in_an_exception_group_is_printed_as_a_sentence(synapse: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: list[str]) -> int:
        raise ExceptionGroup("host", [ExceptionGroup("part", [errors.StoreFull("no space left")])])

    monkeypatch.setattr("synapse.cli.guide.run_guide", fail)

    ran = synapse("guide", "--json")

    assert (ran.code, ran.json["error"]["code"]) == (1, "store_full")


def add_profile(home: Path, name: str) -> Path:
    file = home / "config" / "synapse" / "profiles" / f"{name}.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("command = ['{python}', '-P', '-m', 'synapse.tools.dummy']\n", encoding="utf-8")
    return file


def test_a_verb_says_how_to_start_a_profile_of_its_name(synapse: Cli, home: Path) -> None:
    file = add_profile(home, "list")

    ran = synapse("list", "--json")

    told = f"`list` is a verb, and the name of the profile {file}: `synapse start list` starts the profile\n"
    assert (ran.code, ran.json, ran.err) == (0, [], told)
    assert synapse("queue").err == "No messages are queued.\n"


def test_a_profile_of_a_project_counts_too(synapse: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = home / "work"
    (project / ".synapse" / "profiles").mkdir(parents=True)
    (project / ".synapse" / "profiles" / "queue.toml").write_text("command = ['bc']", encoding="utf-8")
    monkeypatch.chdir(project)

    assert "`synapse start queue` starts the profile" in synapse("queue").err


def test_a_profile_that_start_cannot_start_has_to_be_renamed(synapse: Cli, home: Path) -> None:
    add_profile(home, "scripted")

    assert "rename the profile to start it" in synapse("scripted", "--help").err


def test_the_doctor_and_the_list_of_a_projects_files_name_such_profiles(synapse: Cli, home: Path) -> None:
    add_profile(home, "send")

    (found,) = [one for one in synapse("doctor", "--json").json["findings"] if "name of a verb" in one["text"]]
    assert (found["level"], found["subject"]) == ("note", "send")
    assert found["advice"] == "`synapse start send` starts the profile"
    project = home / "work"
    (project / ".synapse" / "profiles").mkdir(parents=True)
    (project / ".synapse" / "profiles" / "top.toml").write_text("command = ['bc']", encoding="utf-8")
    effect = synapse("trust", str(project), "--json").json["files"]["profiles/top.toml"]
    assert effect == "runs: bc  (top is a verb too: `synapse start top` starts the profile)"


def test_no_profile_that_comes_with_synapse_has_the_name_of_a_verb() -> None:
    assert not VERBS.keys() & set(profile_names())
