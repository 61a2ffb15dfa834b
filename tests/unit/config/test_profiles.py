"""Where profiles come from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from synapse.config.settings import BUNDLED_PROFILES, load_profile, profile_names
from synapse.config.trust import Project, read_project
from synapse.core.errors import InvalidProfile, UnknownProfile


def test_the_bundled_profiles_are_there() -> None:
    assert profile_names() == ["claude", "codex", "copilot", "dummy", "gemini", "opencode"]


def test_the_built_in_agent_is_run_by_the_running_python() -> None:
    assert load_profile("dummy").command == (sys.executable, "-P", "-m", "synapse.tools.dummy")


def test_a_file_of_the_user_adds_a_profile(tmp_path: Path) -> None:
    (tmp_path / "bc.toml").write_text('command = ["bc"]', encoding="utf-8")

    assert load_profile("bc", [tmp_path]).command == ("bc",)
    assert "bc" in profile_names([tmp_path])


def test_the_first_folder_that_has_it_wins(tmp_path: Path) -> None:
    for folder in ("project", "user"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool.toml").write_text(f'command = ["{folder}"]', encoding="utf-8")

    assert load_profile("tool", [tmp_path / "project", tmp_path / "user"]).command == ("project",)


def test_a_name_that_is_nearly_right_is_recognised() -> None:
    with pytest.raises(UnknownProfile, match="there is no profile 'cloude'") as caught:
        load_profile("cloude")

    assert caught.value.hint == "Did you mean 'claude'?"


def test_an_error_for_an_unknown_name_lists_the_profiles(tmp_path: Path) -> None:
    with pytest.raises(UnknownProfile) as caught:
        load_profile("zzzzzzzzzz", [tmp_path / "missing", BUNDLED_PROFILES])

    assert caught.value.hint.startswith("the profiles are: claude, codex")


@pytest.mark.parametrize("name", ["../secret", "sub/tool", "/etc/tool"])
def test_a_name_cannot_leave_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "profiles" / "sub").mkdir(parents=True)
    for place in ("secret.toml", "profiles/sub/tool.toml"):
        (tmp_path / place).write_text('command = ["x"]', encoding="utf-8")

    with pytest.raises(UnknownProfile):
        load_profile(name, [tmp_path / "profiles"])


@pytest.mark.parametrize("name", ["$(touch x)", "a b", "-x", ".hidden", "x;y", "", "a\nb"])
def test_a_file_whose_name_a_shell_would_expand_is_not_a_profile(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.toml").write_text('command = ["x"]', encoding="utf-8")

    assert profile_names([tmp_path]) == []
    with pytest.raises(UnknownProfile):
        load_profile(name, [tmp_path])


def test_a_program_is_not_looked_for_in_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('command = ["./run"]', encoding="utf-8")

    with pytest.raises(InvalidProfile, match="is relative to the current folder") as caught:
        load_profile("mine", [tmp_path])

    assert str(tmp_path / "mine.toml") in caught.value.hint


def test_a_project_names_a_program_of_its_own_by_its_place_in_the_project(tmp_path: Path) -> None:
    project = Project(folder=tmp_path, files={"profiles/tool.toml": b'command = ["bin/tool", "{python}"]'})

    assert load_profile("tool", [project]).command == (str(tmp_path / "bin" / "tool"), sys.executable)


def test_a_project_profile_has_the_bytes_that_were_judged(tmp_path: Path) -> None:
    (tmp_path / ".synapse" / "profiles").mkdir(parents=True)
    file = tmp_path / ".synapse" / "profiles" / "tool.toml"
    file.write_text('command = ["seen"]', encoding="utf-8")
    project = read_project(tmp_path)

    file.write_text('command = ["changed"]', encoding="utf-8")

    assert load_profile("tool", [project]).command == ("seen",)


@pytest.mark.parametrize("content", [b"command = [", b"\xff\xfe", b"command = 5"])
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.toml").write_bytes(content)

    with pytest.raises(InvalidProfile, match="profile 'bad'") as caught:
        load_profile("bad", [tmp_path])

    assert caught.value.hint


@pytest.mark.parametrize("name", ["a b", "a\x1b[2J", "tool]", "日本"])
def test_a_file_whose_name_is_not_a_plain_word_is_not_a_profile(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.toml").write_text('command = ["tool"]', encoding="utf-8")

    with pytest.raises(UnknownProfile):
        load_profile(name, [tmp_path])


@pytest.mark.parametrize("name", ["key.tool", "Unverified.x", "n" * 41])
def test_a_name_that_does_not_fit_into_a_header_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.toml").write_text('command = ["tool"]', encoding="utf-8")

    with pytest.raises(InvalidProfile, match="cannot be the name of a profile"):
        load_profile(name, [tmp_path])
