"""Makes the text that is typed for a message: stores files and long texts in a folder, and names their paths."""

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
"""File systems allow 255 bytes; the rest is room for a number in front."""
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
"""The types that assistants read, with their suffixes. `mimetypes` would read the machine's files."""
_READ_THE_FILE: Final = "The message is long, so it is in a file. Read it and do what it says: "


class PromptFiles:
    """Makes the text of a turn. Each task with files gets a private folder in `folder`."""

    def __init__(self, folder: Path, limit_bytes: int, *, envelope: bool = True) -> None:
        """`envelope=False` leaves the header out, for programs that take every line for their own language."""
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._envelope = envelope

    def stores_nothing(self, turn: Turn) -> bool:
        """Returns whether `compose` will not touch the disk: the message is a short text, the common case."""
        is_text = all(isinstance(part, TextPart) for part in turn.message.parts)
        return is_text and len(turn.text.encode()) <= self._limit_bytes

    def compose(self, turn: Turn) -> str:
        """Returns the text to type; stores what does not belong into a prompt.

        Raises:
            FileNotStored: the disk is full, or the folder cannot be written.
        """
        additions = [added for part in turn.message.parts if (added := self._addition(turn, part))]
        text = " ".join((turn.text, *additions)).strip()
        header = _HEADER.match(text)
        begin = header[0] if header else ""
        body = text[len(begin) :]
        if not self._envelope:
            begin, text = "", body
        if len(text.encode()) <= self._limit_bytes:
            return text
        return f"{begin}{_READ_THE_FILE}{self._store(turn, 'message.txt', body.encode())}"

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
            path = _free_path(folder, name)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with open(descriptor, "wb") as file:  # noqa: PTH123  # opened above with its mode, which a path cannot give
                file.write(content)
        except OSError as error:
            why = error.strerror or str(error)
            raise FileNotStored(f"a file of the message could not be stored in {folder}: {why}") from error
        return path


def forget_files_before(folder: Path, moment: float) -> None:
    """Removes the files of all tasks that have got none since `moment`, in seconds since the epoch."""
    try:
        old = [task for task in folder.iterdir() if task.lstat().st_mtime < moment]
    except OSError:
        # There is no such folder, or another process is removing files from it.
        return
    for task in old:
        shutil.rmtree(task, ignore_errors=True)


def _file_name(part: FilePart) -> str:
    """Returns the name of a file; without a suffix it gets that of its type, by which programs recognise files."""
    name = part.name.rpartition("/")[2] or "file"
    return name if "." in name.strip(".") else name + _SUFFIXES.get(media_type_of(part), ("",))[0]


def _label(part: FilePart | DataPart, name: str) -> str:
    """Returns the type of a part, if its name does not show it."""
    media_type = media_type_of(part)
    is_shown = name.lower().endswith(_SUFFIXES.get(media_type, ()))
    return f" {_one_line(media_type)}" if media_type and not is_shown else ""


def _free_path(folder: Path, name: str) -> Path:
    """Returns an unused path for `name`; replaces characters that could leave the folder or act on a prompt."""
    plain = re.sub(r"[^\w.-]+", "_", sanitise(name).rpartition("/")[2]).lstrip(".")
    # The end of a long name is kept: it has the suffix.
    plain = plain.encode()[-_LONGEST_NAME_BYTES:].decode(errors="ignore").lstrip(".") or "file"
    path, number = folder / plain, 1
    while path.exists() or path.is_symlink():
        number += 1
        path = folder / f"{number}-{plain}"
    return path


def _one_line(text: str) -> str:
    return neutralise(one_line(text))
