"""Reads the files that a model attaches, without reading for it what its sandbox forbids.

A tool server runs outside the sandbox of the CLI that started it. So it reads only regular files inside the working
folder, and the path cannot be exchanged between the check and the reading: each folder on the way is opened from the
one above it, and no link is followed.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_BYTES = 2 * 1024 * 1024
"""Of all files of a message together. Base64 makes them a third larger, and a host accepts 4 MiB by default."""
_KIND = 0o170000
_REGULAR = 0o100000
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe would wait for a writer.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotAttached(Exception):
    """A file that cannot be attached; the sentence says why."""


def file_parts(paths: "list[str]", folder: str) -> "list[dict[str, Any]]":
    """Returns the files as parts of a message. Relative paths start at `folder`, outside of which nothing is read.

    Raises:
        NotAttached: a path leads outside, is no regular file, cannot be read, or the files are too large together.
    """
    left = MOST_BYTES
    parts: list[dict[str, Any]] = []
    for path in paths:
        content = _read(path, folder, left)
        left -= len(content)
        parts.append({"type": "file", "file": {"name": os.path.basename(path), "bytes": _base64(content)}})
    return parts


def _read(path: str, folder: str, most: int) -> bytes:
    try:
        root = os.path.realpath(folder)
        inside = os.path.relpath(os.path.realpath(os.path.join(root, path)), root)
        if inside.split(os.sep)[0] in (os.pardir, os.curdir):
            raise NotAttached(f"'{path}' is not a file inside the working folder {folder}")
        with open(_open_inside(root, inside.split(os.sep)), "rb") as file:
            if os.fstat(file.fileno()).st_mode & _KIND != _REGULAR:
                raise NotAttached(f"'{path}' is not a regular file")
            content = file.read(most + 1)
    except OSError as error:
        raise NotAttached(f"'{path}' cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise NotAttached(f"'{path[:100]}' is not a path") from error
    if len(content) > most:
        raise NotAttached(f"the files have more than {MOST_BYTES // 1024 // 1024} MiB together; name the paths instead")
    return content


def _open_inside(root: str, names: "list[str]") -> int:
    """Opens a file below `root`; `names` has no links any more, and one that appears meanwhile is an OSError."""
    at = os.open(root, _FOLDER_FLAGS)
    try:
        for name in names[:-1]:
            below = os.open(name, _FOLDER_FLAGS, dir_fd=at)
            os.close(at)
            at = below
        return os.open(names[-1], _FILE_FLAGS, dir_fd=at)
    finally:
        os.close(at)


def _base64(content: bytes) -> str:
    from binascii import b2a_base64

    return b2a_base64(content, newline=False).decode("ascii")
