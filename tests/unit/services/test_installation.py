"""Which `synapse` a service may run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from synapse.core.errors import UnsupportedOperation
from synapse.services.installation import lasting_command, own_command, throw_away_reason


@pytest.mark.parametrize(
    "path",
    [
        "/tmp/x/.venv/bin/synapse",
        "/var/tmp/v/bin/synapse",
        "/run/user/1000/v/bin/synapse",
        "/srv/kim/.cache/uv/archive-v0/abc/bin/synapse",
        "/data/uv/environments-v2/abc/bin/synapse",
        "/srv/kim/.local/share/pipx/.cache/abc/bin/synapse",
    ],
)
def test_environments_that_soon_disappear_are_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/kim")

    assert path in throw_away_reason((Path("/usr/bin/synapse"), Path(path)), {"UV_CACHE_DIR": "/data/uv"})


@pytest.mark.parametrize(
    "path",
    [
        "/usr/local/bin/synapse",
        "/srv/kim/.local/bin/synapse",
        "/srv/kim/.local/share/uv/tools/synapse-a2a/bin/synapse",
        "/srv/kim/.local/share/pipx/venvs/synapse-a2a/bin/synapse",
        "/srv/kim/src/synapse/.venv/bin/synapse",
        "/tmpfiles/bin/synapse",
    ],
)
def test_what_was_installed_to_stay_passes(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/kim")

    assert throw_away_reason((Path(path),), {}) == ""


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_command_is_named_as_it_was_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tmp_path / "synapse"
    link.symlink_to(program(tmp_path / "tools" / "bin" / "synapse"))
    monkeypatch.setattr(sys, "argv", [str(link)])

    assert own_command() == link


def test_a_module_run_by_python_is_found_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = program(tmp_path / "bin" / "synapse")
    monkeypatch.setattr(sys, "argv", ["/somewhere/synapse/cli/main.py"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))

    assert own_command() == command


def test_no_service_runs_from_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(program(tmp_path / "bin" / "synapse"))])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    with pytest.raises(UnsupportedOperation) as refused:
        lasting_command({})

    assert "temporary folder" in str(refused.value)
    assert "uv tool install" in refused.value.hint


def test_without_a_command_there_is_no_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["-c"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    with pytest.raises(UnsupportedOperation):
        own_command()
