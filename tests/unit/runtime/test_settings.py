"""Where settings come from, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from synapse.cli.hosts import state_folder
from synapse.core.errors import InvalidSettings
from synapse.runtime.settings import BUNDLED_PROFILES, FOR_AGENTS, KINDS, MEANINGS, Settings, load_settings


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project" / "src"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def write_user(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config" / "synapse" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_project(project: Path, text: str) -> Path:
    path = project.parent / ".synapse" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_without_anything_the_defaults_hold(project: Path, environ: dict[str, str]) -> None:
    settings = load_settings(environ=environ, folder=project)

    assert settings.home == Path("~/.a2a").expanduser()
    assert settings.store == settings.home / "store.db"
    assert (settings.host, settings.agents_may_approve, settings.instructions) == ("127.0.0.1", False, True)
    assert settings.sources == {}


def test_flag_beats_environment_beats_project_beats_user(
    project: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    user = write_user(tmp_path, "queue_limit = 1\nkeep_days = 1\nresponse_timeout = 1\ninstructions = false")
    own = write_project(project, "queue_limit = 2\nkeep_days = 2\nresponse_timeout = 2")
    environ |= {"SYNAPSE_QUEUE_LIMIT": "3", "SYNAPSE_KEEP_DAYS": "3"}

    settings = load_settings({"queue_limit": 4, "message_ttl": None}, environ=environ, folder=project)

    assert (settings.queue_limit, settings.keep_days, settings.response_timeout) == (4, 3, 2.0)
    assert settings.instructions is False
    assert settings.sources == {
        "queue_limit": "flag",
        "keep_days": "environment SYNAPSE_KEEP_DAYS",
        "response_timeout": f"project file {own}",
        "instructions": f"user file {user}",
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("queue_limit = 'many'", "'queue_limit' must be a whole number of at least 0, not 'many'"),
        ("queue_limit = true", "'queue_limit' must be a whole number"),
        ("queue_limit = -1", "'queue_limit' must be a whole number"),
        ("response_timeout = inf", "'response_timeout' must be a number of at least 0"),
        ("instructions = 1", "'instructions' must be true or false, not 1"),
        ("home = 3", "'home' must be a path, not 3"),
        ("home = ''", "'home' must be a path"),
        ("detach_key = []", "'detach_key' must be text"),
        ("queue_limt = 3", "unknown setting 'queue_limt'"),
        ("[table]\nx = 1", "unknown setting 'table'"),
        ("queue_limit =", "is not TOML"),
    ],
)
def test_what_cannot_be_used_names_the_file_and_the_key(
    project: Path, environ: dict[str, str], line: str, said: str
) -> None:
    path = write_project(project, line)

    with pytest.raises(InvalidSettings) as caught:
        load_settings(environ=environ, folder=project)

    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_a_wrong_key_gets_the_one_that_was_probably_meant(project: Path, environ: dict[str, str]) -> None:
    write_project(project, "queue_limt = 3")

    with pytest.raises(InvalidSettings) as caught:
        load_settings(environ=environ, folder=project)

    assert caught.value.hint == "did you mean 'queue_limit'?"


def test_a_wrong_variable_is_named(project: Path, environ: dict[str, str]) -> None:
    with pytest.raises(InvalidSettings, match="SYNAPSE_INSTRUCTIONS must be true or false, not 'maybe'"):
        load_settings(environ=environ | {"SYNAPSE_INSTRUCTIONS": "maybe"}, folder=project)


@pytest.mark.parametrize(("word", "value"), [("1", True), ("Yes", True), ("off", False), ("false", False)])
def test_switches_in_the_environment_are_words(project: Path, environ: dict[str, str], word: str, value: bool) -> None:
    assert load_settings(environ=environ | {"SYNAPSE_INSTRUCTIONS": word}, folder=project).instructions is value


@pytest.mark.parametrize("line", ["agents_may_approve = true", "host = '0.0.0.0'", "person_proof = 'process'"])
def test_a_project_cannot_switch_off_what_protects_people_from_agents(
    project: Path, environ: dict[str, str], tmp_path: Path, line: str
) -> None:
    write_user(tmp_path, line)
    load_settings(environ=environ, folder=project)
    write_project(project, line)

    with pytest.raises(InvalidSettings, match="cannot be set by a project"):
        load_settings(environ=environ, folder=project)


def test_a_relative_folder_in_a_project_is_the_projects(project: Path, environ: dict[str, str]) -> None:
    write_project(project, "home = 'state'")

    assert load_settings(environ=environ, folder=project).home == project.parent / "state"
    assert state_folder(environ, str(project)) == str(project.parent / "state")


def test_the_light_way_to_the_home_agrees_with_the_settings(
    project: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    for changes in ({}, {"SYNAPSE_HOME": str(tmp_path / "x")}, {"SYNAPSE_HOME": "~/y"}, {"SYNAPSE_HOME": "rel"}):
        settings = load_settings(environ=environ | changes, folder=project)
        assert state_folder(environ | changes, str(project)) == str(settings.home)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_project_file_of_another_user_is_passed_over(project: Path, environ: dict[str, str]) -> None:
    os.chown(write_project(project, "queue_limit = 2"), 12345, 12345)

    assert load_settings(environ=environ, folder=project).queue_limit == Settings().queue_limit


def test_a_project_adds_profiles_but_replaces_neither_the_users_nor_the_bundled_ones(
    project: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    (project.parent / ".synapse" / "profiles").mkdir(parents=True)

    assert load_settings(environ=environ, folder=project).profile_folders == (
        tmp_path / "config" / "synapse" / "profiles",
        BUNDLED_PROFILES,
        project.parent / ".synapse" / "profiles",
    )


def test_every_setting_has_a_type_and_a_meaning() -> None:
    assert KINDS.keys() == MEANINGS.keys()
    assert [row[0] for row in Settings().as_rows()] == list(MEANINGS)


def test_an_agent_sets_nothing_by_a_variable_that_protects_somebody(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "SYNAPSE_HOME": str(tmp_path / "mine")}
    environ |= {f"SYNAPSE_{name.upper()}": "1" for name in KINDS if name not in FOR_AGENTS and name != "person_proof"}

    mine = load_settings(environ=environ, folder=tmp_path)
    an_agents = load_settings(environ=environ, folder=tmp_path, by_agent=True)

    assert (mine.agents_may_approve, mine.allow_private_agents, mine.host) == (True, True, "1")
    assert set(an_agents.sources) == {"home"}
    assert an_agents.home == tmp_path / "mine"


def test_what_an_agent_starts_has_no_grant_of_its_persons_either(tmp_path: Path) -> None:
    (tmp_path / "synapse").mkdir()
    file = tmp_path / "synapse" / "config.toml"
    file.write_text("agents_may_approve = true\nhost = '0.0.0.0'\nperson_proof = 'terminal'\n", encoding="utf-8")

    settings = load_settings(
        environ={"XDG_CONFIG_HOME": str(tmp_path)}, folder=tmp_path, by_agent=True
    ).without_grants()

    assert (settings.agents_may_approve, settings.host, settings.terminal_decides) == (False, "127.0.0.1", True)


@pytest.mark.parametrize("word", ["code", "", "TERMINAL"])
def test_a_proof_that_does_not_exist_is_refused(tmp_path: Path, word: str) -> None:
    (tmp_path / "synapse").mkdir()
    (tmp_path / "synapse" / "config.toml").write_text(f"person_proof = '{word}'", encoding="utf-8")

    with pytest.raises(InvalidSettings, match="process or terminal"):
        load_settings(environ={"XDG_CONFIG_HOME": str(tmp_path)}, folder=tmp_path)
