"""Which folders are safe to keep state and settings in, and whose `.synapse/` counts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from synapse.config.paths import check_content, check_place, find_project, writable_by_others
from synapse.core.errors import InvalidSettings

STRANGER = 12345
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that others can enter, unlike the folder of the tests."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder).resolve()


def check(place: Path, folder: Path) -> None:
    check_place(str(place), str(folder), what="the state folder", variable="SYNAPSE_HOME")


def check_all(place: Path) -> None:
    check_content(str(place), what="the state folder", variable="SYNAPSE_HOME")


def make(path: Path, mode: int = 0o755) -> Path:
    path.mkdir(parents=True)
    path.chmod(mode)
    return path


def test_the_nearest_project_above_is_found(place: Path) -> None:
    inner = make(place / "a" / "b")
    assert find_project(str(inner)) == ""

    make(place / ".synapse")
    assert find_project(str(inner)) == str(place)

    make(place / "a" / ".synapse")
    assert find_project(str(inner)) == str(place / "a")


def test_nothing_above_the_users_home_counts_inside_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(place / "home"))
    make(place / ".synapse")

    assert find_project(str(make(place / "home" / "work"))) == ""
    assert find_project(str(make(place / "elsewhere"))) == str(place)


@as_root
def test_a_project_folder_of_another_user_does_not_count(place: Path) -> None:
    planted = make(place / ".synapse")
    (planted / "config.toml").write_text("", encoding="utf-8")
    os.chown(planted, STRANGER, STRANGER)

    assert find_project(str(make(place / "work"))) == ""


def test_a_private_folder_is_safe_whether_it_exists_or_not(place: Path) -> None:
    check(place / "state", place)
    check(make(place / "state", 0o700), place)
    check(make(place / "readable", 0o755), place)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_a_folder_that_others_can_write_is_refused(place: Path, mode: int) -> None:
    state = make(place / "state", mode)

    with pytest.raises(InvalidSettings, match=f"can be written by other users .mode {mode:04o}.") as caught:
        check(state, place)

    assert caught.value.hint == f"chmod go-w {state}"


def test_a_folder_of_a_group_with_others_is_refused(place: Path) -> None:
    state = make(place / "state", 0o775)
    if os.getuid() == 0:
        os.chown(state, 0, STRANGER)

    assert [path for path, _ in writable_by_others(str(state))] in ([str(state)], [])
    if os.getuid() == 0:
        with pytest.raises(InvalidSettings, match="can be written by other users"):
            check(state, place)


def test_a_parent_folder_that_others_can_write_is_refused_unless_it_is_sticky(place: Path) -> None:
    around = make(place / "around", 0o777)
    state = make(around / "state", 0o700)

    with pytest.raises(InvalidSettings) as caught:
        check(state, place)
    assert caught.value.hint == f"chmod go-w {around}"

    around.chmod(0o1777)
    check(state, place)


def test_a_folder_that_others_cannot_reach_may_have_any_mode(place: Path) -> None:
    make(place / "home", 0o700)

    check(make(place / "home" / "state", 0o777), place)


def test_a_link_is_as_safe_as_its_folder_and_its_target(place: Path) -> None:
    real = make(place / "real", 0o700)
    (place / "state").symlink_to(real)
    check(place / "state", place)

    (make(place / "open", 0o777) / "link").symlink_to(real)
    (place / "far").symlink_to(place / "open" / "link")
    with pytest.raises(InvalidSettings):
        check(place / "far", place)

    (place / "round").symlink_to(place / "round")
    check(place / "round", place)


@as_root
def test_a_folder_of_another_user_is_refused(place: Path) -> None:
    state = make(place / "state", 0o700)
    os.chown(state, STRANGER, STRANGER)

    with pytest.raises(InvalidSettings, match=f"{state} belongs to another user .uid {STRANGER}.") as caught:
        check(state, place)

    assert "set SYNAPSE_HOME to a folder of your own" in caught.value.hint


@as_root
@pytest.mark.parametrize("name", ["store.db", "gateway.toml", "keys.json", "registry"])
def test_an_entry_of_another_user_is_refused(place: Path, name: str) -> None:
    state = make(place / "state", 0o700)
    (state / name).write_text("", encoding="utf-8")
    check_all(state)
    os.chown(state / name, STRANGER, STRANGER)

    with pytest.raises(InvalidSettings, match=f"{name} belongs to another user"):
        check_all(state)


def test_an_entry_that_others_can_write_is_refused(place: Path) -> None:
    state = make(place / "state", 0o755)
    (state / "gateway.toml").write_text("", encoding="utf-8")
    (state / "gateway.toml").chmod(0o666)

    with pytest.raises(InvalidSettings, match=r"gateway\.toml can be written by other users"):
        check_all(state)

    state.chmod(0o700)
    check_all(state)
    check_all(place / "missing")


def test_a_folder_in_the_project_is_refused_also_behind_a_link(place: Path) -> None:
    project = make(place / "project")
    make(project / ".synapse")
    make(project / "state", 0o700)
    (place / "link").symlink_to(project / "state")

    for state in (project, project / "state", project / "missing", place / "link"):
        with pytest.raises(InvalidSettings, match="is inside the project"):
            check(state, project)
    check(place / "project-state", project)
    check(project / "state", place)


def test_the_users_home_may_have_a_project_folder_of_its_own(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(place))
    make(place / ".synapse")

    check(place / ".a2a", make(place / "work"))
