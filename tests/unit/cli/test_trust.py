"""`synapse trust`, and what `config`, `doctor` and other commands say about a project."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from synapse.server.lineage import Lineage
from tests.unit.cli.conftest import Cli, HostFactory, become


@pytest.fixture
def project(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a profile and a setting, and the command line in a folder of it."""
    folder = home.resolve() / "work" / "project"
    (folder / ".synapse" / "profiles").mkdir(parents=True)
    (folder / ".synapse" / "profiles" / "calc.toml").write_text(
        "command = ['no-such-program', '-l']\nargs = ['-q']\nenv = { LANG = 'C' }", encoding="utf-8"
    )
    (folder / ".synapse" / "config.toml").write_text("queue_limit = 2\nhome = 'here'\n", encoding="utf-8")
    (folder / "src").mkdir()
    monkeypatch.chdir(folder / "src")
    return folder


def states(synapse: Cli) -> dict[str, str]:
    return {one["folder"]: one["state"] for one in synapse("trust", "--list", "--json").json}


def test_trusting_a_folder_prints_what_its_files_do(synapse: Cli, project: Path) -> None:
    ran = synapse("trust")

    assert ran.code == 0
    assert "profiles/calc.toml       runs: LANG=C no-such-program -l -q\n" in ran.out
    assert "config.toml              sets queue_limit = 2\n" in ran.out
    assert "a project may not set them: home\n" in ran.err
    assert f"Trusted {project} as it is now." in ran.err
    assert states(synapse) == {str(project): "trusted"}


def test_trust_as_json_has_the_hash_and_the_files(synapse: Cli, project: Path) -> None:
    told = synapse("trust", str(project), "--json").json

    assert (told["folder"], told["state"], told["ignored"]) == (str(project), "trusted", ["home"])
    assert len(told["sha256"]) == 64
    assert told["files"]["profiles/calc.toml"] == "runs: LANG=C no-such-program -l -q"


def test_the_list_shows_changed_and_removed_projects(synapse: Cli, project: Path, home: Path) -> None:
    assert "There are no decisions yet." in synapse("trust", "--list").err
    synapse("trust")

    (project / ".synapse" / "config.toml").write_text("queue_limit = 3\n", encoding="utf-8")
    assert states(synapse) == {str(project): "changed since it was trusted"}
    (project / ".synapse" / "link").symlink_to("config.toml")
    assert states(synapse) == {str(project): "cannot be trusted"}
    (project / ".synapse").rename(home / "away")
    assert states(synapse) == {str(project): "gone"}
    assert "gone" in synapse("trust", "--list").out

    assert synapse("trust", "--revoke", str(project)).code == 0
    assert states(synapse) == {}


def test_trust_is_revoked_from_any_folder_of_the_project(synapse: Cli, project: Path) -> None:
    synapse("trust")

    ran = synapse("trust", "--revoke", "--json")

    assert ran.json == {"folder": str(project), "state": "not trusted"}
    assert synapse("trust", "--revoke").code == 3


def test_many_files_without_effect_do_not_hide_a_program(synapse: Cli, project: Path) -> None:
    for number in range(100):
        (project / ".synapse" / f"file-{number}").touch()

    shown = synapse("trust").out.splitlines()

    assert shown[10] == "and 90 more files"
    assert [line.split()[0] for line in shown[11:]] == ["config.toml", "profiles/calc.toml"]


def test_there_must_be_something_to_trust(synapse: Cli, home: Path) -> None:
    assert synapse("trust", str(home / "missing")).code == 3
    (home / "plain").mkdir()

    ran = synapse("trust", str(home / "plain"))

    assert ran.code == 3
    assert "has a .synapse/ that you own" in ran.err


def test_a_link_in_the_project_is_refused_by_its_name(synapse: Cli, project: Path) -> None:
    (project / ".synapse" / "profiles" / "x.toml").symlink_to("/etc/passwd")

    ran = synapse("trust")

    assert ran.code == 2
    assert f"{project}/.synapse/profiles/x.toml is not a plain file" in ran.err
    assert states(synapse) == {}
    assert (
        f"{project}/.synapse is ignored: {project}/.synapse/profiles/x.toml is not a plain file" in synapse("calc").err
    )


def test_an_agent_may_look_but_not_decide(
    synapse: Cli, project: Path, start: HostFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(start(), monkeypatch)
    # The setting that lets agents approve does not let them trust a folder.
    monkeypatch.setenv("SYNAPSE_AGENTS_MAY_APPROVE", "1")

    for words in (["trust"], ["trust", "--revoke"]):
        ran = synapse(*words)
        assert ran.code == 7
        assert (
            "only a person may decide which folders are trusted, and this command is not a person's: "
            "it belongs to the agent"
        ) in ran.err
    assert synapse("trust", "--list").code == 0


def test_trust_is_not_asked_for_outside_a_demanded_terminal(
    synapse: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNAPSE_PERSON_PROOF", "terminal")
    monkeypatch.setattr("synapse.cli.person.own_lineage", Lineage)
    said = io.StringIO("y\n")
    monkeypatch.setattr(said, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", said)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)

    ran = synapse("calc")

    assert "Do you trust this folder?" not in ran.err
    assert "because you have not trusted it" in ran.err
    assert states(synapse) == {}


def test_a_profile_of_an_untrusted_project_is_not_used_and_says_what_to_do(synapse: Cli, project: Path) -> None:
    ran = synapse("calc")

    assert ran.code == 3
    assert ran.err.count("synapse trust") == 1
    assert ran.err == (
        f"Error: the profile 'calc' is not used: {project}/.synapse is ignored, because you have not trusted it; "
        f"review it, then: synapse trust {project}\n"
    )
    synapse("trust")
    assert "'no-such-program' is not installed" in synapse("calc").err


def test_a_project_profile_with_the_name_of_the_users_own_asks_nothing(synapse: Cli, project: Path) -> None:
    (project / ".synapse" / "config.toml").unlink()
    (project / ".synapse" / "profiles" / "claude.toml").write_text("command = ['evil']", encoding="utf-8")

    assert "synapse trust" not in synapse("claude", "--port", "x").err


def test_a_project_that_was_trusted_with_unusable_settings_can_be_revoked(synapse: Cli, project: Path) -> None:
    (project / ".synapse" / "config.toml").write_text("queue_limit = 'many'", encoding="utf-8")
    assert synapse("trust").code == 0
    assert synapse("config").code == 2

    assert synapse("trust", "--revoke").code == 0

    assert synapse("config").code == 0


def test_a_message_queued_in_an_untrusted_project_follows_the_users_settings(synapse: Cli, project: Path) -> None:
    ran = synapse("send", "reviewer", "later", "--queue")

    assert ran.code == 0
    assert ran.err.splitlines()[0].startswith(f"Warning: {project}/.synapse is ignored, because you have not trusted")
    assert ran.err.count("synapse trust") == 1


def test_an_unknown_profile_is_reported_before_the_person_is_asked_for_trust(synapse: Cli, project: Path) -> None:
    ran = synapse("clade")

    assert ran.code == 3
    assert "neither a verb nor a profile" in ran.err
    assert "synapse trust" not in ran.err


def test_config_shows_the_project_and_what_is_ignored(synapse: Cli, project: Path) -> None:
    ran = synapse("config")
    assert f"project: {project} (not trusted)" in ran.out
    assert ran.err.count("synapse trust") == 1

    synapse("trust")
    ran = synapse("config")
    assert f"project: {project} (trusted)" in ran.out
    assert f"Warning: {project}/.synapse/config.toml: ignored, because a project may not set it" in ran.err
    told = synapse("config", "--json").json
    assert told["queue_limit"] == {"value": 2, "source": f"project file {project}/.synapse/config.toml"}
    assert told["project"] == {
        "folder": str(project),
        "trust": "trusted",
        "problem": "",
        "profiles": ["calc"],
        "settings": ["queue_limit"],
        "refused": ["home"],
    }


def test_doctor_shows_the_project(synapse: Cli, project: Path) -> None:
    def found() -> list[str]:
        findings = synapse("doctor", "--json").json["findings"]
        return [f"{one['level']} {one['text']} → {one['advice']}" for one in findings if one["subject"] == "project"]

    refused = f"note {project}/.synapse/config.toml: a project may not set home → set it in your own settings"
    assert found() == [f"note {project}/.synapse is ignored: not trusted → synapse trust {project}", refused]
    synapse("trust")
    assert found() == [f"ok {project}/.synapse is trusted → ", refused]
    (project / ".synapse" / "link").symlink_to("config.toml")
    assert "is not a plain file" in found()[0]


def test_relative_entries_of_search_paths_are_a_problem(synapse: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:.:node_modules/.bin")
    monkeypatch.setenv("PYTHONPATH", "/somewhere::")

    found = {one["subject"]: one for one in synapse("doctor", "--json").json["findings"]}

    assert found["PATH"]["level"] == "problem"
    assert found["PATH"]["text"].endswith(": ., node_modules/.bin")
    assert found["PYTHONPATH"]["text"].endswith(": (empty), (empty)")
