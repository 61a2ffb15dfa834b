"""Stores the external agents of this user and their credentials: two folders of private files named `{alias}.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from synapse.config.private_files import make_private, write_private
from synapse.core.errors import StoreCorrupt, StoreFailed
from synapse.core.requests import ExternalAgent

_SUFFIX: Final = ".json"
_TEXTS: Final = ("alias", "url", "name", "description", "protocol", "added_at")


class FileExternalStore:
    """Implements `agents.ExternalStore`. The files are private, because an address may be confidential."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def agents(self) -> tuple[ExternalAgent, ...]:
        """Returns all agents, by alias. Raises StoreCorrupt for a file that is broken, or StoreFailed."""
        aliases = sorted(path.stem for path in self._files())
        return tuple(agent for alias in aliases if (agent := self.find(alias)) is not None)

    def find(self, alias: str) -> ExternalAgent | None:
        """Raises StoreCorrupt when the file is broken, StoreFailed when it cannot be read."""
        path = self._path(alias)
        if path is None:
            return None
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreFailed(f"{path} cannot be read: {error.strerror}") from error
        return _agent(content, path)

    def fingerprint(self) -> frozenset[tuple[str, int, int]]:
        """Returns a value that changes whenever an agent is added, changed or removed. Reads no file.

        Raises StoreFailed.
        """
        found: set[tuple[str, int, int]] = set()
        for path in self._files():
            with suppress(OSError):  # the file was just removed
                status = path.stat()
                found.add((path.stem, status.st_ino, status.st_mtime_ns))
        return frozenset(found)

    def write(self, agent: ExternalAgent) -> None:
        """Writes `agent`, whole or not at all. Raises StoreFailed."""
        path = self._path(agent.alias)
        if path is None:
            raise ValueError(f"{agent.alias!r} cannot be a file name")
        fields = {name: getattr(agent, name) for name in _TEXTS}
        fields |= {"card": agent.card, "guarded": agent.address_checked}
        _replace(path, json.dumps(fields, ensure_ascii=False, indent=2) + "\n")

    def remove(self, alias: str) -> ExternalAgent | None:
        """Removes an agent, also one whose file is broken, and returns it. Raises StoreFailed."""
        try:
            known = self.find(alias)
        except StoreCorrupt:
            known = ExternalAgent(alias=alias, url="", name="")
        path = self._path(alias)
        if known is None or path is None:
            return None
        _remove(path)
        return known

    def _files(self) -> list[Path]:
        """Returns the files of the agents, none when the folder is missing. Raises StoreFailed."""
        # Not `glob`: it takes a folder that it cannot read for an empty one, and a gateway stops the missing agents.
        try:
            files = list(self._folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreFailed(f"{self._folder} cannot be read: {error.strerror}") from error
        return [file for file in files if file.suffix == _SUFFIX and not file.name.startswith(".")]

    def _path(self, alias: str) -> Path | None:
        """Returns the file of an alias, or None if the alias is not valid: it must not lead out of the folder."""
        if not alias or alias.startswith(".") or "/" in alias or "\0" in alias:
            return None
        return self._folder / f"{alias}{_SUFFIX}"


class FileCredentials:
    """Implements `agents.CredentialStore`: for each alias the headers of requests to the agent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, alias: str) -> Mapping[str, str]:
        """Returns the headers for an agent, or none.

        Raises StoreCorrupt or StoreFailed; neither tells what is in the file.
        """
        path = self._path(alias)
        try:
            fields: object = json.loads(path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreFailed(f"{path} cannot be read: {error.strerror}") from error
        except ValueError:
            raise _broken_credentials(path) from None
        if not isinstance(fields, dict):
            raise _broken_credentials(path)
        headers = cast("dict[str, object]", fields)
        if not all(isinstance(value, str) for value in headers.values()):
            raise _broken_credentials(path)
        return cast("dict[str, str]", headers)

    def write(self, alias: str, headers: Mapping[str, str]) -> None:
        """Writes the headers for an agent, whole or not at all. Raises StoreFailed."""
        _replace(self._path(alias), json.dumps(dict(headers)))

    def remove(self, alias: str) -> None:
        """Removes the headers for an agent. Raises StoreFailed."""
        _remove(self._path(alias))

    def _path(self, alias: str) -> Path:
        # The store of external agents accepts no alias that leads out of the folder.
        return self._folder / f"{alias}{_SUFFIX}"


def _replace(path: Path, text: str) -> None:
    """Writes a private file, whole or not at all. Raises StoreFailed."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        make_private(path.parent)
        write_private(draft, text)
        draft.replace(path)
    except OSError as error:
        raise StoreFailed(f"{path} cannot be written: {error.strerror}") from error


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreFailed(f"{path} cannot be removed: {error.strerror}") from error


def _agent(content: bytes, path: Path) -> ExternalAgent:
    try:
        fields: object = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _broken(path, "it is not JSON") from error
    if not isinstance(fields, dict):
        raise _broken(path, "it is not a JSON object")
    known = cast("dict[str, Any]", fields)
    for name in _TEXTS:
        if not isinstance(known.get(name), str):
            raise _broken(path, f"'{name}' is missing or not a string")
    if known["alias"] != path.stem:
        raise _broken(path, "its alias differs from the name of the file")
    if not isinstance(known.get("card"), dict):
        raise _broken(path, "'card' is missing or not an object")
    # Files of earlier versions lack the field. Only a plain `false` allows an agent at any address.
    address_checked = known.get("guarded", False) is not False
    return ExternalAgent(**{name: known[name] for name in (*_TEXTS, "card")}, address_checked=address_checked)


def _broken(path: Path, why: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"{path} does not describe an external agent: {why}",
        hint=f"`synapse external remove {path.stem}`, then add it again",
    )


def _broken_credentials(path: Path) -> StoreCorrupt:
    return StoreCorrupt(
        f"{path} does not hold credentials",
        hint=f"run `synapse external add URL --alias {path.stem}` again, with the credentials",
    )
