"""What this user shows to external agents, as a folder of private files, one for each alias: `{alias}.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from synapse.core.errors import StoreCorrupt, StoreFailed
from synapse.registries.private_folders import make_private

_SUFFIX: Final = ".json"
_PRIVATE: Final = 0o600


class FileCredentials:
    """Implements `service.externals.CredentialBook`: for each alias the headers that a request carries."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, alias: str) -> Mapping[str, str]:
        """The headers for an agent, or none. Raises StoreCorrupt or StoreFailed; neither tells what is in the file."""
        path = self._path(alias)
        try:
            fields: object = json.loads(path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreFailed(f"{path} cannot be read: {error.strerror}") from error
        except ValueError:
            raise _broken(path) from None
        if not isinstance(fields, dict):
            raise _broken(path)
        headers = cast("dict[str, object]", fields)
        if not all(isinstance(value, str) for value in headers.values()):
            raise _broken(path)
        return cast("dict[str, str]", headers)

    def write(self, alias: str, headers: Mapping[str, str]) -> None:
        """Remember what an agent is shown, whole or not at all. Raises StoreFailed."""
        path = self._path(alias)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            make_private(self._folder)
            opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
            with os.fdopen(opened, "w", encoding="utf-8") as file:
                json.dump(dict(headers), file)
            draft.replace(path)
        except OSError as error:
            raise StoreFailed(f"{path} cannot be written: {error.strerror}") from error

    def remove(self, alias: str) -> None:
        """Forget what an agent was shown. Raises StoreFailed."""
        path = self._path(alias)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreFailed(f"{path} cannot be removed: {error.strerror}") from error

    def _path(self, alias: str) -> Path:
        # An alias comes from the book of external agents, which takes none that leads out of the folder.
        return self._folder / f"{alias}{_SUFFIX}"


def _broken(path: Path) -> StoreCorrupt:
    return StoreCorrupt(
        f"{path} does not hold credentials",
        hint=f"`synapse external add URL --alias {path.stem}` again, with them",
    )
