"""Where settings come from, and what is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from synapse.client.hosts import state_folder
from synapse.config.process import SystemClock
from synapse.config.settings import BUNDLED_PROFILES, FOR_AGENTS, FOR_PROJECTS, KINDS, MEANINGS, Settings, load_settings
from synapse.config.trust import TrustStore, read_project
from synapse.core.errors import InvalidSettings
from synapse.terminal.theme import Theme


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project" / "src"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "SYNAPSE_HOME": str(tmp_path / "state")}


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


def trust(project: Path, environ: dict[str, str]) -> None:
    read = read_project(project.parent)
    TrustStore(Path(environ["SYNAPSE_HOME"])).decide(read, SystemClock().now(), trusted=True)


def test_without_files_and_variables_the_defaults_hold(project: Path, environ: dict[str, str]) -> None:
    del environ["SYNAPSE_HOME"]

    settings = load_settings(environ=environ, folder=project)

    assert settings.home == Path("~/.a2a").expanduser()
    assert settings.store == settings.home / "store.db"
    assert (settings.host, settings.agents_may_approve, settings.instructions) == ("127.0.0.1", False, True)
    assert settings.sources == {}


def test_flag_beats_environment_beats_project_beats_user(
    project: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    user = write_user(tmp_path, "queue_limit = 1\npush_attempts = 1\nresponse_timeout = 1\ninstructions = false")
    own = write_project(project, "queue_limit = 2\npush_attempts = 2\nresponse_timeout = 2")
    trust(project, environ)
    environ |= {"SYNAPSE_QUEUE_LIMIT": "3", "SYNAPSE_PUSH_ATTEMPTS": "3"}

    settings = load_settings({"queue_limit": 4, "message_ttl": None}, environ=environ, folder=project)

    assert (settings.queue_limit, settings.push_attempts, settings.response_timeout) == (4, 3, 2.0)
    assert settings.instructions is False
    assert settings.sources == {
        "home": "environment SYNAPSE_HOME",
        "queue_limit": "flag",
        "push_attempts": "environment SYNAPSE_PUSH_ATTEMPTS",
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
        ("terminal_size = '80'", "'terminal_size' must be a size as 120x40, not '80'"),
        ("terminal_size = '0x24'", "'terminal_size' must be a size"),
        ("terminal_size = '80x99999'", "'terminal_size' must be a size"),
        ("terminal_theme = 'blue'", "'terminal_theme' must be dark, light or none, not 'blue'"),
        ("queue_limt = 3", "unknown setting 'queue_limt'"),
        ("[table]\nx = 1", "unknown setting 'table'"),
        ("queue_limit =", "is not TOML"),
    ],
)
def test_an_invalid_setting_names_the_file_and_the_key(
    project: Path, environ: dict[str, str], tmp_path: Path, line: str, said: str
) -> None:
    path = write_user(tmp_path, line)

    with pytest.raises(InvalidSettings) as caught:
        load_settings(environ=environ, folder=project)

    assert str(path) in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["queue_limt = 3", "queue_limit = 'many'", "queue_limit ="])
def test_an_error_in_a_trusted_project_names_the_file(project: Path, environ: dict[str, str], text: str) -> None:
    path = write_project(project, text)
    trust(project, environ)

    with pytest.raises(InvalidSettings, match=re.escape(str(path))):
        load_settings(environ=environ, folder=project)


@pytest.mark.parametrize("text", ["queue_limt = 3", "queue_limit = 'many'", "queue_limit ="])
def test_invalid_settings_of_an_untrusted_project_are_not_an_error(
    project: Path, environ: dict[str, str], text: str
) -> None:
    write_project(project, text)

    settings = load_settings(environ=environ, folder=project)

    assert settings.queue_limit == Settings().queue_limit
    assert settings.project is not None
    assert settings.project.note().endswith(f"synapse trust {project.parent}")


def test_the_error_for_an_unknown_key_suggests_a_similar_one(project: Path, environ: dict[str, str]) -> None:
    write_project(project, "queue_limt = 3")
    trust(project, environ)

    with pytest.raises(InvalidSettings) as caught:
        load_settings(environ=environ, folder=project)

    assert caught.value.hint == "did you mean 'queue_limit'?"


def test_the_error_names_an_invalid_variable(project: Path, environ: dict[str, str]) -> None:
    with pytest.raises(InvalidSettings, match="SYNAPSE_INSTRUCTIONS must be true or false, not 'maybe'"):
        load_settings(environ=environ | {"SYNAPSE_INSTRUCTIONS": "maybe"}, folder=project)


@pytest.mark.parametrize(("word", "value"), [("1", True), ("Yes", True), ("off", False), ("false", False)])
def test_a_switch_in_the_environment_may_be_any_of_several_words(
    project: Path, environ: dict[str, str], word: str, value: bool
) -> None:
    assert load_settings(environ=environ | {"SYNAPSE_INSTRUCTIONS": word}, folder=project).instructions is value


def test_the_terminal_of_agents_in_the_background_can_be_chosen(project: Path, environ: dict[str, str]) -> None:
    write_project(project, "terminal_size = '100x30'")
    trust(project, environ)

    settings = load_settings(environ=environ | {"SYNAPSE_TERMINAL_THEME": "light"}, folder=project)

    assert (settings.terminal_size, str(settings.terminal_size)) == ((100, 30), "100x30")
    assert settings.terminal_theme is Theme.LIGHT


NEVER = {
    "home": "'.synapse/state'",
    "uds_dir": "'.synapse/s'",
    "host": "'0.0.0.0'",
    "keep_days": "0",
    "loop_limit_per_minute": "0",
    "agents_may_approve": "true",
    "person_proof": "'terminal'",
    "allow_private_webhooks": "true",
    "allow_private_agents": "true",
    "agent_quota_bytes": "0",
    "outbox_limit": "0",
    "outbox_quota_bytes": "0",
    "session_hours": "0",
    "mcp": "false",
    "allow_commands": "true",
    "search": "false",
    "notify_on": "'none'",
    "notify_agents": "'codex'",
    "notify_quiet": "'00:00-23:59'",
    "notify_desktop": "false",
    "notify_webhook": "'https://example.com/'",
    "notify_ntfy": "'https://example.com/topic'",
    "notify_text": "true",
    "mention_answers": "false",
}


def test_every_setting_is_either_for_trusted_projects_or_never_for_one() -> None:
    assert NEVER.keys() | FOR_PROJECTS == KINDS.keys()
    assert NEVER.keys() & FOR_PROJECTS == set()


def test_the_page_about_trust_names_what_a_trusted_project_may_set() -> None:
    page = Path(__file__).parents[3] / "docs" / "howto" / "trust-a-project.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and "`" in line]

    assert set(re.findall(r"`(\w+)`", "".join(row for row in rows if row.endswith("| yes |")))) == FOR_PROJECTS
    assert set(re.findall(r"`(\w+)`", "".join(row for row in rows if row.endswith("| ignored |")))) == NEVER.keys()


@pytest.mark.parametrize("key", NEVER)
def test_no_project_sets_a_place_an_address_or_a_right(
    project: Path, environ: dict[str, str], tmp_path: Path, key: str
) -> None:
    write_project(project, f"{key} = {NEVER[key]}\n")
    trust(project, environ)

    settings = load_settings(environ=environ, folder=project)

    assert settings.sources == {"home": "environment SYNAPSE_HOME"}
    assert settings.project is not None
    assert settings.project.refused == [key]
    assert key in settings.project.note()
    write_user(tmp_path, f"{key} = {NEVER[key]}\n")
    assert key in load_settings(environ=environ, folder=project).sources


def test_a_project_counts_once_it_is_trusted_and_until_a_file_changes(project: Path, environ: dict[str, str]) -> None:
    write_project(project, "queue_limit = 2")
    assert load_settings(environ=environ, folder=project).queue_limit == Settings().queue_limit

    trust(project, environ)
    assert load_settings(environ=environ, folder=project).queue_limit == 2

    (project.parent / ".synapse" / "more").write_text("", encoding="utf-8")
    changed = load_settings(environ=environ, folder=project)
    assert changed.queue_limit == Settings().queue_limit
    assert changed.project is not None
    assert "it has changed since you trusted it" in changed.project.note()


def test_a_note_is_for_commands_that_would_use_what_is_ignored(project: Path, environ: dict[str, str]) -> None:
    write_project(project, "detach_key = 'ctrl-a'")
    (project.parent / ".synapse" / "profiles").mkdir()
    (project.parent / ".synapse" / "profiles" / "bc.toml").write_text("command = ['bc']", encoding="utf-8")

    found = load_settings(environ=environ, folder=project).project

    assert found is not None
    assert found.note(uses=("response_timeout",)) == ""
    assert found.note("claude", uses=()) == ""
    assert found.note("bc", uses=()).count("synapse trust") == 1
    assert found.note(uses=("detach_key",)).count("synapse trust") == 1


def test_the_home_does_not_come_from_a_project(project: Path, environ: dict[str, str]) -> None:
    del environ["SYNAPSE_HOME"]
    write_project(project, "home = 'state'")

    assert load_settings(environ=environ, folder=project).home == Path("~/.a2a").expanduser()
    assert state_folder(environ, str(project)) == str(Path("~/.a2a").expanduser())


def test_the_light_way_to_the_home_agrees_with_the_settings(
    project: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    del environ["SYNAPSE_HOME"]
    for changes in ({}, {"SYNAPSE_HOME": str(tmp_path / "x")}, {"SYNAPSE_HOME": "~/y"}, {"SYNAPSE_HOME": "rel"}):
        settings = load_settings(environ=environ | changes, folder=project)
        assert state_folder(environ | changes, str(project)) == str(settings.home)
    write_user(tmp_path, f"home = '{tmp_path / 'mine'}'")
    assert state_folder(environ, str(project)) == str(tmp_path / "mine")


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_project_file_of_another_user_is_ignored(project: Path, environ: dict[str, str]) -> None:
    os.chown(write_project(project, "queue_limit = 2").parent, 12345, 12345)

    assert load_settings(environ=environ, folder=project).project is None


def test_a_project_adds_profiles_but_replaces_neither_the_users_nor_the_bundled_ones(
    project: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    (project.parent / ".synapse" / "profiles").mkdir(parents=True)
    own = (tmp_path / "config" / "synapse" / "profiles", BUNDLED_PROFILES)
    assert load_settings(environ=environ, folder=project).profile_sources == own

    trust(project, environ)

    assert load_settings(environ=environ, folder=project).profile_sources == (*own, read_project(project.parent))


def test_every_setting_has_a_type_and_a_meaning() -> None:
    assert KINDS.keys() == MEANINGS.keys()
    assert [row[0] for row in Settings().as_rows()] == list(MEANINGS)


def test_the_variables_of_an_agent_set_nothing_that_protects_others(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "SYNAPSE_HOME": str(tmp_path / "mine")}
    environ |= {f"SYNAPSE_{name.upper()}": "1" for name in KINDS if name not in FOR_AGENTS and name != "person_proof"}

    mine = load_settings(environ=environ, folder=tmp_path)
    an_agents = load_settings(environ=environ, folder=tmp_path, by_agent=True)

    assert (mine.agents_may_approve, mine.allow_private_agents, mine.host) == (True, True, "1")
    assert set(an_agents.sources) == {"home"}
    assert an_agents.home == tmp_path / "mine"


def test_a_host_that_an_agent_starts_has_no_grants_of_the_person(tmp_path: Path) -> None:
    (tmp_path / "synapse").mkdir()
    file = tmp_path / "synapse" / "config.toml"
    file.write_text("agents_may_approve = true\nhost = '0.0.0.0'\nperson_proof = 'terminal'\n", encoding="utf-8")

    settings = load_settings(
        environ={"XDG_CONFIG_HOME": str(tmp_path)}, folder=tmp_path, by_agent=True
    ).without_grants()

    assert (settings.agents_may_approve, settings.host, settings.terminal_decides) == (False, "127.0.0.1", True)


@pytest.mark.parametrize(
    ("written", "counts"), [((0, 0), (30, 1024**3)), ((31, 2**40), (30, 1024**3)), ((5, 7), (5, 7))]
)
def test_a_host_that_an_agent_starts_has_no_looser_limits_than_the_defaults(
    tmp_path: Path, written: tuple[int, int], counts: tuple[int, int]
) -> None:
    (tmp_path / "synapse").mkdir()
    file = tmp_path / "synapse" / "config.toml"
    file.write_text(f"loop_limit_per_minute = {written[0]}\nagent_quota_bytes = {written[1]}\n", encoding="utf-8")

    settings = load_settings(
        environ={"XDG_CONFIG_HOME": str(tmp_path)}, folder=tmp_path, by_agent=True
    ).without_grants()

    assert (settings.loop_limit_per_minute, settings.agent_quota_bytes) == counts


@pytest.mark.parametrize(
    ("written", "variable", "is_demanded"),
    [
        ("terminal", "process", True),
        ("terminal", "", True),
        ("process", "terminal", True),
        ("process", "process", False),
    ],
)
def test_a_variable_can_demand_a_terminal_but_not_waive_it(
    tmp_path: Path, written: str, variable: str, is_demanded: bool
) -> None:
    (tmp_path / "synapse").mkdir()
    (tmp_path / "synapse" / "config.toml").write_text(f"person_proof = '{written}'", encoding="utf-8")

    settings = load_settings(
        environ={"XDG_CONFIG_HOME": str(tmp_path), "SYNAPSE_PERSON_PROOF": variable}, folder=tmp_path
    )

    assert settings.terminal_decides is is_demanded
    assert settings.sources["person_proof"].startswith("user file" if written == "terminal" else "environment")


@pytest.mark.parametrize("word", ["code", "", "TERMINAL"])
def test_an_unknown_person_proof_is_refused(tmp_path: Path, word: str) -> None:
    (tmp_path / "synapse").mkdir()
    (tmp_path / "synapse" / "config.toml").write_text(f"person_proof = '{word}'", encoding="utf-8")

    with pytest.raises(InvalidSettings, match="process or terminal"):
        load_settings(environ={"XDG_CONFIG_HOME": str(tmp_path)}, folder=tmp_path)
