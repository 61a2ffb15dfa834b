"""`synapse up`, `down` and `ps`: what they say, and whom they ask, before any agent starts."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from synapse.host.background import HostLaunch
from synapse.host.membership import Membership
from synapse.teams.file import parse_team
from synapse.teams.state import MemberRecord, TeamRecord, TeamStore
from tests.unit.cli.conftest import Cli, HostFactory, become

TEAM = """
[team]
name = "shop"
[agents.db]
profile = "dummy"
arguments = ["-v"]
[agents.web]
script = "web.toml"
after = ["db"]
"""


@pytest.fixture
def folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the command line, outside of the state folder."""
    place = home.resolve() / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def file(folder: Path) -> Path:
    path = folder / "team.toml"
    path.write_text(TEAM, encoding="utf-8")
    return path


@pytest.fixture
def project_file(folder: Path) -> Path:
    path = folder / ".synapse" / "team.toml"
    path.parent.mkdir()
    path.write_text(TEAM, encoding="utf-8")
    return path


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Puts a person at the terminal, who says this."""
    said = io.StringIO(text)
    monkeypatch.setattr(said, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", said)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)


def planned(synapse: Cli, *words: str) -> list[str]:
    return synapse("up", "--dry-run", *words).err.splitlines()


def test_the_example_is_written_for_the_project_and_never_over_a_file(synapse: Cli, folder: Path) -> None:
    path = folder / ".synapse" / "team.toml"

    assert synapse("up", "--example").err == f"Wrote {path}. Edit it, then: synapse up\n"
    assert parse_team(path.read_bytes(), path, folder).names == ["lead", "coder"]

    path.write_text("mine", encoding="utf-8")
    ran = synapse("up", "--example")
    assert (ran.code, ran.err.splitlines()[0]) == (7, f"Error: {path} exists already")
    assert path.read_text(encoding="utf-8") == "mine"


def test_the_example_does_not_follow_a_link(synapse: Cli, folder: Path) -> None:
    (folder / "night.toml").symlink_to(folder / "target.toml")

    assert synapse("up", "--example", "night.toml").code == 7
    assert not (folder / "target.toml").exists()


def test_without_a_file_the_error_says_how_to_write_one(synapse: Cli, folder: Path) -> None:
    ran = synapse("up")

    assert ran.code == 3
    assert f"there is no .synapse/team.toml in {folder} or above it" in ran.err
    assert "synapse up --example" in ran.err
    assert synapse("up", "missing.toml").code == 3


def test_a_file_that_nobody_trusts_is_refused_where_nobody_can_be_asked(synapse: Cli, file: Path) -> None:
    ran = synapse("up", "team.toml", "--json")

    assert ran.code == 7
    error = ran.json["error"]
    assert (error["code"], error["message"]) == ("person_required", f"{file} is not trusted, and runs programs")
    assert f"synapse trust {file}" in error["hint"]
    assert synapse("up", "team.toml").code == 7


def test_a_person_is_shown_what_would_run_where_and_asked_once(
    synapse: Cli, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, "y\n")

    ran = synapse("up", "--dry-run", "team.toml")

    assert ran.code == 0
    shown = ran.err.splitlines()
    assert shown[0] == f"{file} is not trusted. It would run:"
    assert shown[1].startswith("  db   ")
    assert "-m synapse.tools.dummy -v" in shown[1]
    assert shown[1].endswith(f"in {file.parent}")
    assert shown[2].startswith(f"  web  the script {file.parent}/web.toml")
    assert shown[4] == "Do you trust this file? [y/N] db: would start"
    assert planned(synapse, "team.toml") == ["db: would start", "web: would start"]

    file.write_text(TEAM.replace("-v", "-x"), encoding="utf-8")
    answer(monkeypatch, "n\n")
    ran = synapse("up", "--dry-run", "team.toml")
    assert ran.code == 7
    assert f"{file} has changed since you trusted it. It would run:" in ran.err


@pytest.mark.parametrize("said", ["n\n", "\n", "", "maybe\n"])
def test_anything_but_yes_is_no(synapse: Cli, file: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    answer(monkeypatch, said)

    assert synapse("up", "--dry-run", "team.toml").code == 7
    assert synapse("trust", "--list", "--json").json == []


def test_an_agent_is_not_asked(synapse: Cli, file: Path, start: HostFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    become(start(), monkeypatch)
    answer(monkeypatch, "y\n")

    ran = synapse("up", "--dry-run", "team.toml")

    assert ran.code == 7
    assert "Do you trust" not in ran.err
    assert synapse("trust", "team.toml").code == 7


def test_the_bytes_that_were_asked_about_are_the_bytes_that_are_used(
    synapse: Cli, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swap() -> bool:
        """Somebody replaces the file once the person is there to be asked."""
        file.write_text('[team]\nname = "shop"\n[agents.evil]\nprofile = "dummy"', encoding="utf-8")
        return True

    answer(monkeypatch, "y\n")
    monkeypatch.setattr("sys.stdin.isatty", swap)

    ran = synapse("up", "--dry-run", "team.toml")

    assert "db: would start" in ran.err
    assert "evil" not in ran.err
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert synapse("up", "--dry-run", "team.toml").code == 7


def test_mistakes_are_told_before_the_question(synapse: Cli, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("[agents.db]\nprofil = 'dummy'", encoding="utf-8")
    answer(monkeypatch, "y\n")

    ran = synapse("up", "team.toml")

    assert ran.code == 2
    assert "Do you trust" not in ran.err


def test_files_that_are_nested_too_deeply_are_no_toml(
    synapse: Cli, file: Path, project_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = f"a = {'[' * 20_000}"
    file.write_text(deep, encoding="utf-8")
    for name in ("config.toml", "other.toml"):
        (project_file.parent / name).write_text(deep, encoding="utf-8")

    listed = synapse("list")
    trusted = synapse("trust")
    (project_file.parent / "config.toml").unlink()
    answer(monkeypatch, "y\n")
    ran = synapse("up", "team.toml")

    assert listed.code == 0
    assert [line.split(maxsplit=1)[1] for line in trusted.out.splitlines()][:2] == ["is not TOML", "is not TOML"]
    assert ran.code == 2
    assert f"{file} is not TOML" in ran.err


def test_the_file_of_a_project_is_trusted_with_the_project(
    synapse: Cli, project_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = synapse("up", "--dry-run")
    assert (ran.code, ran.err.count(f"synapse trust {project_file.parent.parent}")) == (7, 1)

    answer(monkeypatch, "y\n")
    asked = synapse("up", "--dry-run")
    assert asked.code == 0
    # The file is shown once: by what it would run.
    assert asked.err.count("team.toml") == 1
    assert "Nothing else is in that folder.\nIts authors" in asked.err
    assert "Do you trust this folder?" in asked.err

    assert planned(synapse) == ["db: would start", "web: would start"]
    assert planned(synapse, str(project_file)) == ["db: would start", "web: would start"]
    (project_file.parent / "new").touch()
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert synapse("up", "--dry-run").code == 7
    answer(monkeypatch, "n\n")
    place = project_file.parent
    assert f"With it, all of {place} would be trusted:\n  new\nIts authors" in synapse("up", "--dry-run").err


def test_ps_without_a_team_says_what_to_type_here(synapse: Cli, folder: Path) -> None:
    assert synapse("ps").err == "No team is up.  (synapse up --example)\n"
    (folder / ".synapse").mkdir()
    assert synapse("ps").err == "No team is up.  (synapse up --example)\n"

    (folder / ".synapse" / "team.toml").touch()

    assert synapse("ps").err == "No team is up.  (synapse up)\n"


def test_a_projects_paths_start_at_the_project(synapse: Cli, project_file: Path) -> None:
    synapse("trust")

    assert planned(synapse) == ["db: would start", "web: would start"]
    team = parse_team(project_file.read_bytes(), project_file, project_file.parent.parent)
    assert team.members[1].script == str(project_file.parent.parent / "web.toml")


def test_a_link_a_folder_and_a_file_of_another_user_are_refused(
    synapse: Cli, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = file.with_name("link.toml")
    link.symlink_to(file)
    synapse("trust", "team.toml")
    assert "is a symbolic link" in synapse("up", "--dry-run", "link.toml").err
    assert "is a symbolic link" in synapse("trust", "link.toml").err
    pipe = file.with_name("pipe.toml")
    os.mkfifo(pipe)
    assert "is not a plain file" in synapse("up", "--dry-run", "pipe.toml").err

    def is_theirs(_: int) -> bool:
        return False

    monkeypatch.setattr("synapse.config.trust.is_ours", is_theirs)
    assert "belongs to another user" in synapse("up", "--dry-run", "team.toml").err


def test_a_team_file_is_trusted_listed_and_revoked_by_its_path(synapse: Cli, file: Path) -> None:
    ran = synapse("trust", "team.toml")
    assert ran.out == "team.toml                starts: db (dummy -v), web (web.toml)\n"
    assert [(one["folder"], one["state"]) for one in synapse("trust", "--list", "--json").json] == [
        (str(file), "trusted")
    ]
    file.write_text(TEAM + "\n", encoding="utf-8")
    assert [one["state"] for one in synapse("trust", "--list", "--json").json] == ["changed since it was trusted"]

    assert synapse("trust", "--revoke", "team.toml").code == 0
    assert synapse("trust", "--list", "--json").json == []


def test_agents_are_named_with_or_without_the_file(synapse: Cli, project_file: Path) -> None:
    synapse("trust")

    assert planned(synapse, "db") == ["db: would start"]
    assert planned(synapse, ".synapse/team.toml", "db") == ["db: would start"]
    assert synapse("up", "--dry-run", ".synapse/team.toml", "--json", "db").json["agents"] == [
        {"agent": "db", "action": "start", "why": ""}
    ]
    ran = synapse("up", "--dry-run", "dp")
    assert (ran.code, ran.err.splitlines()[-1]) == (2, "did you mean 'db'?")


def test_a_worktree_outside_of_a_repository_is_an_error_of_that_agent(synapse: Cli, file: Path) -> None:
    file.write_text(TEAM.replace('arguments = ["-v"]', "worktree = true"), encoding="utf-8")
    synapse("trust", "team.toml")

    ran = synapse("up", "--dry-run", "team.toml")

    assert ran.code == 1
    assert ran.err.startswith("db: would fail, because ")
    assert "is not in a git repository" in ran.err
    assert "web: would start" in ran.err


def test_ps_fits_a_narrow_terminal_and_tells_what_is_wrong(
    synapse: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership = Membership(team="shop")
    folder = "/a/very/long/folder" * 10
    launch = HostLaunch(verb=("dummy",), name="db", folder=folder, membership=membership)
    gone = MemberRecord(
        launch=launch,
        agent_id="synapse-dummy-8190",
        pid=2**22,
        pid_started=1,
        restarts=4,
        problem="given up after 5 quick ends",
    )
    failed = MemberRecord(
        launch=HostLaunch(verb=("dummy",), name="web", folder=folder, membership=membership), problem="no such profile"
    )
    TeamStore(home).write(TeamRecord(name="shop", file=str(home / "team.toml"), members=(gone, failed)))
    monkeypatch.setattr("synapse.cli.tables.line_width", lambda: 80)

    ran = synapse("ps")

    assert [line.split()[:3] for line in ran.out.splitlines()[1:]] == [
        ["shop", "db", "crashed:"],
        ["shop", "web", "not"],
    ]
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "! db: given up after 5 quick ends\n! web: no such profile\n" in ran.err
    assert "! shop has no keeper" in ran.err
    assert [(one["agent"], one["state"], one["restarts"], one["kept"]) for one in synapse("ps", "--json").json] == [
        ("db", "crashed: given up", 4, False),
        ("web", "not started", 0, False),
    ]
    assert synapse("ps", "other").code == 3


def test_down_needs_a_team_that_is_up(synapse: Cli, file: Path) -> None:
    ran = synapse("down", "team.toml")
    assert ran.code == 3
    assert f"no team is up from {file}" in ran.err
    assert "no team 'other' is up" in synapse("down", "other").err
