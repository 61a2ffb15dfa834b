"""What systemd is told when a process of ours is ready."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from synapse.config.systemd import NOTIFY_SOCKET, take_notifier


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_once_it_is_ready(tmp_path: Path, *, abstract: bool) -> None:
    path = str(tmp_path / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(5)
        listening.bind("\0" + path if abstract else path)
        environ = {NOTIFY_SOCKET: f"@{path}" if abstract else path, "LANG": "C"}

        take_notifier(environ)("Listening on\nhttp://127.0.0.1:8000")

        assert listening.recv(1000) == b"READY=1\nSTATUS=Listening on http://127.0.0.1:8000"
    assert environ == {"LANG": "C"}


@pytest.mark.parametrize(
    "environ", [{}, {NOTIFY_SOCKET: ""}, {NOTIFY_SOCKET: "/nowhere/n"}, {NOTIFY_SOCKET: "vsock:2"}]
)
def test_without_systemd_nothing_happens(environ: dict[str, str]) -> None:
    take_notifier(environ)("ready")

    assert environ == {}
