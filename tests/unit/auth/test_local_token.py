"""The token of the TCP port."""

from __future__ import annotations

import stat
from pathlib import Path

from synapse.auth.local import own_token


def test_the_token_is_created_once(tmp_path: Path) -> None:
    first = own_token(tmp_path / "home")

    assert len(first) >= 40
    assert own_token(tmp_path / "home") == first


def test_the_token_is_private_and_leaves_no_draft(tmp_path: Path) -> None:
    own_token(tmp_path / "home")

    assert [path.name for path in (tmp_path / "home").iterdir()] == ["token"]
    assert stat.S_IMODE((tmp_path / "home" / "token").stat().st_mode) == 0o600
