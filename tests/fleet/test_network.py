"""The network of the fleet's tests does what they rely on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fleet.network import can_make_namespaces, mount_image, open_disk, open_network

pytestmark = pytest.mark.skipif(not can_make_namespaces(), reason="network namespaces need root")

ANSWER = "import socket; s = socket.create_server(('0.0.0.0', 4222)); print(flush=True); s.accept()[0].sendall(b'here')"
ASK = "import socket, sys; print(socket.create_connection((sys.argv[1], 4222), 2).recv(4).decode())"


def test_machines_reach_each_other_until_a_link_is_cut() -> None:
    with open_network("hub", "laptop") as network:
        for is_cut in (False, True):
            server = network.popen("hub", [sys.executable, "-c", ANSWER], env=os.environ, output=subprocess.PIPE)
            try:
                assert server.stdout is not None
                server.stdout.readline()
                if is_cut:
                    network.cut("laptop")
                asked = subprocess.run(
                    network.command("laptop", [sys.executable, "-c", ASK, network.address("hub")]),
                    capture_output=True,
                    check=False,
                )
            finally:
                server.kill()
                server.communicate()
            assert (asked.stdout.strip() == b"here") is not is_cut


def test_a_copy_of_a_mounted_disk_lacks_what_was_not_synced(tmp_path: Path) -> None:
    try:
        with open_disk(tmp_path) as place:
            synced, unsynced = place / "synced", place / "unsynced"
            with synced.open("wb") as file:
                file.write(b"1")
                file.flush()
                os.fsync(file.fileno())
            unsynced.write_bytes(b"2")
            (tmp_path / "copy").write_bytes((tmp_path / "disk").read_bytes())
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop mounts here: {error.stderr.decode().strip()}")
    after = tmp_path / "after"
    after.mkdir()
    mount_image(tmp_path / "copy", after)
    try:
        assert (after / "synced").read_bytes() == b"1"
        assert not (after / "unsynced").exists() or (after / "unsynced").read_bytes() == b""
    finally:
        subprocess.run(["umount", str(after)], check=True)
