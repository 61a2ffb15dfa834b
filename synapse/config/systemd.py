"""Tells systemd that this process is ready, where systemd started it and waits for that (`Type=notify`)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, MutableMapping
from typing import Final

NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"


def take_notifier(environ: MutableMapping[str, str] = os.environ) -> Callable[[str], None]:
    """Returns a function that tells systemd this process is ready, with a status for people.

    Removes the socket's name from the environment: programs that this process starts must not speak for it. Without a
    service manager the function does nothing.
    """
    name = environ.pop(NOTIFY_SOCKET, "")

    def notify_ready(status: str) -> None:
        if not name.startswith(("/", "@")):
            return
        # An abstract name is written with @ for its first byte, 0.
        address = f"\0{name[1:]}" if name.startswith("@") else name
        line = " ".join(status.split())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
                connection.sendto(f"READY=1\nSTATUS={line}".encode(), address)
        except OSError:
            return  # systemd reports a service that stays silent; serving is worth more than saying so

    return notify_ready
