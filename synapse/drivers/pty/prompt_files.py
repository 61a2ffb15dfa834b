"""What is typed for a message that is more than a short text: files lie beside it, and the text says where."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Final, assert_never

from synapse.config.private_files import make_private
from synapse.core.driver import Turn
from synapse.core.errors import FileNotStored
from synapse.core.message import DataPart, FilePart, Part, TextPart, media_type_of
from synapse.core.text import neutralise, one_line, sanitise

_LONGEST_NAME_BYTES: Final = 80
"""File systems count bytes (255 at most); the rest is room for a number in front."""
_HEADER: Final = re.compile(r"\[A2A:[^\]\n]*\] ")
_SUFFIXES: Final[dict[str, tuple[str, ...]]] = {
    "application/json": (".json",),
    "application/octet-stream": ("",),
    "application/pdf": (".pdf",),
    "application/xml": (".xml",),
    "application/zip": (".zip",),
    "image/gif": (".gif",),
    "image/jpeg": (".jpg", ".jpeg"),
    "image/png": (".png",),
    "image/svg+xml": (".svg",),
    "image/webp": (".webp",),
    "text/csv": (".csv",),
    "text/html": (".html", ".htm"),
    "text/markdown": (".md",),
    "text/plain": (".txt",),
}
"""The types that assistants read, by the ends of their names. `mimetypes` would ask the files of the machine."""
_READ_THE_FILE: Final = "The message is long, so it is in a file. Read it and do what it says: "


class PromptFiles:
    """Makes the text of a turn. `folder` gets a private folder for each task that brings files."""

    def __init__(self, folder: Path, limit_bytes: int, *, envelope: bool = True) -> None:
        """Without `envelope` the header is left out: for programs that take every line for their own language."""
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._envelope = envelope

    def stores_nothing(self, turn: Turn) -> bool:
        """True for a short text, the common case: then `compose` touches no disk."""
        is_text = all(isinstance(part, TextPart) for part in turn.message.parts)
        return is_text and len(turn.text.encode()) <= self._limit_bytes

    def compose(self, turn: Turn) -> str:
        """Return the text to type; store what does not belong into a prompt.

        Raises:
            FileNotStored: there is no room for it, or no right to it.
        """
        text = " ".join((turn.text, *self._additions(turn))).strip()
        header = _HEADER.match(text)
        begin = header[0] if header else ""
        body = text[len(begin) :]
        if not self._envelope:
            begin, text = "", body
        if len(text.encode()) <= self._limit_bytes:
            return text
        return f"{begin}{_READ_THE_FILE}{self._store(turn, 'message.txt', body.encode())}"

    def _additions(self, turn: Turn) -> list[str]:
        return [added for part in turn.message.parts if (added := self._addition(turn, part))]

    def _addition(self, turn: Turn, part: Part) -> str:
        match part:
            case TextPart():
                return ""
            case FilePart(content=bytes() as content):
                path = self._store(turn, _file_name(part), content)
                return f"[file{_label(part, path.name)}: {path}]"
            case FilePart(url=url):
                return f"[file{_label(part, url)}: {_one_line(url)}]"
            case DataPart(data=data):
                text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
                return f"[data{_label(part, '.json')}: {_one_line(text)}]"
            case _:
                assert_never(part)

    def _store(self, turn: Turn, name: str, content: bytes) -> Path:
        folder = self._folder / turn.task_id
        try:
            make_private(self._folder)
            make_private(folder)
            path = _free(folder, name)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with open(descriptor, "wb") as file:  # noqa: PTH123  # opened above with its mode, which a path cannot give
                file.write(content)
        except OSError as error:
            why = error.strerror or str(error)
            raise FileNotStored(f"a file of the message could not be stored in {folder}: {why}") from error
        return path


def forget_files_before(folder: Path, moment: float) -> None:
    """Remove the files of all tasks that have brought none since `moment`, in seconds since the epoch."""
    try:
        old = [task for task in folder.iterdir() if task.lstat().st_mtime < moment]
    except OSError:
        # There is no such folder, or somebody else removes from it right now.
        return
    for task in old:
        shutil.rmtree(task, ignore_errors=True)


def _file_name(part: FilePart) -> str:
    """The name of a file; one without a suffix gets that of its type, because programs tell files by it."""
    name = part.name.rpartition("/")[2] or "file"
    return name if "." in name.strip(".") else name + _SUFFIXES.get(media_type_of(part), ("",))[0]


def _label(part: FilePart | DataPart, name: str) -> str:
    """The type of a part, to be read where its name does not tell it."""
    media_type = media_type_of(part)
    is_told = name.lower().endswith(_SUFFIXES.get(media_type, ()))
    return f" {_one_line(media_type)}" if media_type and not is_told else ""


def _free(folder: Path, name: str) -> Path:
    """A path for `name` that nothing has yet; what could leave the folder or act on a prompt is replaced."""
    plain = re.sub(r"[^\w.-]+", "_", sanitise(name).rpartition("/")[2]).lstrip(".")
    plain = _ending(plain, _LONGEST_NAME_BYTES) or "file"
    path, number = folder / plain, 1
    while path.exists() or path.is_symlink():
        number += 1
        path = folder / f"{number}-{plain}"
    return path


def _ending(name: str, most_bytes: int) -> str:
    """As much of the end of a name as there is room for: it has the suffix."""
    return name.encode()[-most_bytes:].decode(errors="ignore").lstrip(".")


def _one_line(text: str) -> str:
    return neutralise(one_line(text))
