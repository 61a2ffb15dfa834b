"""An invalid certificate is reported when the gateway starts."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from synapse.core.errors import InvalidSettings
from synapse.gateway.gateway import tls_context
from tests.fakes.certificates import self_made


def test_the_server_speaks_no_old_tls(tmp_path: Path) -> None:
    context = tls_context(*self_made(tmp_path))

    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    certificate, key = self_made(tmp_path)

    with pytest.raises(InvalidSettings, match=r"nothing\.pem cannot be read"):
        tls_context(tmp_path / "nothing.pem", key)
    with pytest.raises(InvalidSettings, match=r"nothing\.pem cannot be read"):
        tls_context(certificate, tmp_path / "nothing.pem")


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    certificate, _ = self_made(tmp_path)
    (tmp_path / "other").mkdir()
    _, other_key = self_made(tmp_path / "other")

    with pytest.raises(InvalidSettings, match="not a certificate and its key"):
        tls_context(certificate, other_key)
    with pytest.raises(InvalidSettings, match="not a certificate and its key"):
        tls_context(other_key, other_key)


def test_a_key_that_other_users_can_read_is_refused(tmp_path: Path) -> None:
    certificate, key = self_made(tmp_path)
    key.chmod(0o644)

    with pytest.raises(InvalidSettings, match="other users can read"):
        tls_context(certificate, key)


def test_an_encrypted_key_is_refused_without_asking_for_its_password(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="encrypted with a password"):
        tls_context(*self_made(tmp_path, password=b"secret"))
