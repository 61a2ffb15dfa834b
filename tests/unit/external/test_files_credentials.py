"""Credentials are stored in private files, and no error shows their content."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from synapse.core.errors import StoreCorrupt, StoreFailed
from synapse.external.files import FileCredentials

HEADERS = {"Authorization": "Bearer secret"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "credentials"


def test_credentials_are_stored_privately_and_removed(folder: Path) -> None:
    credentials = FileCredentials(folder)
    assert credentials.find("other") == {}

    credentials.write("other", HEADERS)

    assert FileCredentials(folder).find("other") == HEADERS
    assert stat.S_IMODE((folder / "other.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    credentials.remove("other")
    credentials.remove("other")
    assert credentials.find("other") == {}


@pytest.mark.parametrize("content", ["{secret", '["secret"]', '{"Authorization": 3}'])
def test_a_broken_file_is_reported_without_its_content(folder: Path, content: str) -> None:
    folder.mkdir(parents=True)
    (folder / "other.json").write_text(content, encoding="utf-8")

    with pytest.raises(StoreCorrupt) as caught:
        FileCredentials(folder).find("other")

    assert "secret" not in str(caught.value)
    assert "--alias other" in caught.value.hint


def test_an_unusable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    credentials = FileCredentials(tmp_path / "file")

    with pytest.raises(StoreFailed):
        credentials.write("other", HEADERS)
    with pytest.raises(StoreFailed):
        credentials.find("other")
    with pytest.raises(StoreFailed):
        credentials.remove("other")
