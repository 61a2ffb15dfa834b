"""A network of machines on this computer: one namespace for each, joined by a bridge in a namespace of its own.

    laptop (10.77.0.2) ──┐
    box2   (10.77.0.3) ──┼── bridge ── hub (10.77.0.1)

Nothing leaves the namespaces. Making them needs root; `can_make_namespaces` tells.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Final

SUBNET: Final = "10.77.0"


@cache
def can_make_namespaces() -> bool:
    """Whether this user may make network namespaces and links between them."""
    name = f"syn-try-{os.getpid()}"
    try:
        _ip("netns", "add", name)
    except (OSError, subprocess.CalledProcessError):
        return False
    try:
        _ip("-n", name, "link", "add", "name", "try0", "type", "veth", "peer", "name", "try1")
    except subprocess.CalledProcessError:
        return False
    finally:
        _ip("netns", "del", name)
    return True


class Network:
    """Machines that reach each other until somebody cuts their links."""

    def __init__(self, prefix: str, machines: Sequence[str]) -> None:
        self._prefix = prefix
        self._machines = tuple(machines)

    def address(self, machine: str) -> str:
        return f"{SUBNET}.{self._machines.index(machine) + 1}"

    def popen(
        self, machine: str, command: Sequence[str], *, env: Mapping[str, str], output: IO[bytes] | int | None = None
    ) -> subprocess.Popen[bytes]:
        """Starts a program on a machine; ends with the program, whose pid is the process's own."""
        return subprocess.Popen(self.command(machine, command), env=dict(env), stdout=output, stderr=output)

    def command(self, machine: str, command: Sequence[str]) -> list[str]:
        """Returns the command line that runs `command` on the machine. `ip netns exec` replaces itself with it."""
        return ["ip", "netns", "exec", self._space(machine), *command]

    def cut(self, machine: str) -> None:
        """Takes the machine's link down: packets are dropped, connections stay half open."""
        _ip("-n", self._bridge, "link", "set", "dev", machine, "down")

    def mend(self, machine: str) -> None:
        """Brings the machine's link up again."""
        _ip("-n", self._bridge, "link", "set", "dev", machine, "up")

    @property
    def _bridge(self) -> str:
        return f"{self._prefix}-bridge"

    def _space(self, machine: str) -> str:
        return f"{self._prefix}-{machine}"

    def add(self, machine: str, ending: ExitStack) -> None:
        space = self._space(machine)
        _ip("netns", "add", space)
        ending.callback(_forget, space)
        _ip("-n", space, "link", "add", "name", "eth0", "type", "veth", "peer", "name", machine, "netns", self._bridge)
        _ip("-n", space, "addr", "add", f"{self.address(machine)}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _ip("-n", space, "link", "set", "dev", link, "up")
        _ip("-n", self._bridge, "link", "set", "dev", machine, "master", "bridge", "up")

    def add_bridge(self, ending: ExitStack) -> None:
        _ip("netns", "add", self._bridge)
        ending.callback(_forget, self._bridge)
        _ip("-n", self._bridge, "link", "add", "name", "bridge", "type", "bridge")
        _ip("-n", self._bridge, "link", "set", "dev", "bridge", "up")


@contextmanager
def open_network(*machines: str) -> Generator[Network]:
    """Makes a namespace for each machine, at most 15 letters long; removes them at the end."""
    network = Network(f"syn{os.getpid()}", machines)
    with ExitStack() as ending:
        network.add_bridge(ending)
        for machine in machines:
            network.add(machine, ending)
        yield network


@contextmanager
def open_disk(folder: Path, megabytes: int = 64) -> Generator[Path]:
    """Mounts a file system of its own, in the image `folder`/disk; yields where. Needs root and loop devices.

    A copy of the image has what a disk has after a power cut: what was written, not what the kernel still held.
    """
    image, place = folder / "disk", folder / "mounted"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0", str(image))
    mount_image(image, place)
    try:
        yield place
    finally:
        _run("umount", "--lazy", str(place))


def mount_image(image: Path, place: Path) -> None:
    """Mounts a disk image."""
    _run("mount", "-o", "loop", str(image), str(place))


def _forget(space: str) -> None:
    with suppress(subprocess.CalledProcessError):
        _ip("netns", "del", space)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=30)
