"""The bearer token that opens an agent's TCP port to other users: a secret in a private file, made at first start."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from synapse.registries.private_folders import make_folders

FILE: Final = "token"
_BYTES: Final = 32


def own_token(home: Path) -> str:
    """Return the user's token, made if there is none; several processes may ask at once.

    Raises OSError.
    """
    make_folders(home)
    path = home / FILE
    draft = home / f".{FILE}.{os.getpid()}"
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        pass  # nobody has made it yet
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(_BYTES) + "\n")
    try:
        # Unlike a rename, a link does not replace what another process has made meanwhile.
        path.hardlink_to(draft)
    except FileExistsError:
        pass  # then that one counts
    finally:
        draft.unlink()
    return path.read_text(encoding="ascii").strip()
