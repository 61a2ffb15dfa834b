"""Requests with the secret of a launch, as the MCP server of an agent makes them; also run as a process."""

from __future__ import annotations

import json
import sys
from typing import Any

from synapse.client.http import HostAddress, as_object, compose, connect, read_head, status_of
from synapse.core.agent import LAUNCH_HEADER


def ask(
    address: HostAddress, method: str, path: str, *secrets: str, body: dict[str, Any] | None = None
) -> tuple[int, dict[str, Any]]:
    """Return status and body of the answer to a request that shows these secrets."""
    connection = connect(address)
    headers = tuple(f"{LAUNCH_HEADER}: {secret}" for secret in secrets)
    connection.sendall(compose(address, method, path, body, headers))
    head, text = read_head(connection)
    while piece := connection.recv(1 << 16):
        text += piece
    connection.close()
    return status_of(head), as_object(text)


def send(socket: str, secret: str, claimed: str, text: str) -> None:
    """Send a message as `claimed`, and print how it was answered."""
    sender = {"sender_id": claimed, "sender_type": "dummy", "sender_endpoint": ""}
    message = {"role": "user", "parts": [{"type": "text", "text": text}]}
    shown = (secret,) if secret else ()
    body = {"message": message, "metadata": {"sender": sender}}
    sys.stdout.write(json.dumps(ask(HostAddress(socket), "POST", "/tasks/send", *shown, body=body)))
