"""What is typed for a message that is more than a short text: files lie beside it, and the text says where."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Final, assert_never

from synapse.core.driver import Turn
from synapse.core.envelope import sanitise
from synapse.core.message import DataPart, FilePart, Part, TextPart

_LONGEST_NAME: Final = 80
_HEADER: Final = re.compile(r"\[A2A:[^\]\n]*\] ")


class Composer:
    """Makes the text of a turn. `folder` gets a private folder for each task that brings files."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes

    def compose(self, turn: Turn) -> str:
        """Return the text to type; store what does not belong into a prompt."""
        text = " ".join((turn.text, *self._additions(turn))).strip()
        if len(text.encode()) <= self._limit_bytes:
            return text
        header = _HEADER.match(text)
        begin = header[0] if header else ""
        path = self._store(turn, "message.txt", text[len(begin) :].encode())
        return f"{begin}The message is long, so it is in a file. Read it and do what it says: {path}"

    def _additions(self, turn: Turn) -> list[str]:
        return [added for part in turn.message.parts if (added := self._addition(turn, part))]

    def _addition(self, turn: Turn, part: Part) -> str:
        match part:
            case TextPart():
                return ""
            case FilePart(content=bytes() as content, name=name):
                return f"[file: {self._store(turn, name or 'file', content)}]"
            case FilePart(url=url):
                return f"[file: {_one_line(url)}]"
            case DataPart(data=data):
                return f"[data: {_one_line(json.dumps(data, ensure_ascii=False, separators=(',', ':')))}]"
            case _:
                assert_never(part)

    def _store(self, turn: Turn, name: str, content: bytes) -> Path:
        folder = self._folder / turn.task_id
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = _free(folder, name)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123  # opened above with its mode, which a path cannot give
            file.write(content)
        return path


def _free(folder: Path, name: str) -> Path:
    """A path for `name` that nothing has yet; what could leave the folder or act on a prompt is replaced."""
    plain = re.sub(r"[^\w.-]+", "_", name.rpartition("/")[2]).lstrip(".")[-_LONGEST_NAME:] or "file"
    path, number = folder / plain, 1
    while path.exists() or path.is_symlink():
        number += 1
        path = folder / f"{number}-{plain}"
    return path


def _one_line(text: str) -> str:
    return " ".join(sanitise(text).split())
