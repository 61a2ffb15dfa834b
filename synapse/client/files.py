"""Reads files for a model, without reading for it what its CLI would not.

The commands and tools of Synapse run unasked, and tool servers run outside the sandbox of the CLI that started them.
So they read only regular files inside given folders, and a path cannot be exchanged between the check and the reading:
each folder on the way is opened from the one above it, and no link is followed. Loaded only when a file is named.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_KIND = 0o170000
_REGULAR = 0o100000
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe would wait for a writer.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DARWIN_USER_TEMP_DIR = 65_537


class NotReadable(Exception):
    """A file that is not read for a model; the sentence says why."""


class TooLarge(NotReadable):
    """A file with more bytes than the caller takes."""


def read_inside(path: str, start: str, folders: "Sequence[str]", most: int) -> bytes:
    """Returns the content of a regular file inside one of the folders. A relative path starts at `start`.

    Raises:
        NotReadable: the path leads elsewhere, or is no regular file, or cannot be read.
        TooLarge: the file has more than `most` bytes.
    """
    try:
        target = os.path.realpath(os.path.join(start, path))
        with open(_open_inside(path, target, folders), "rb") as file:
            if os.fstat(file.fileno()).st_mode & _KIND != _REGULAR:
                raise NotReadable(f"'{path}' is not a regular file")
            content = file.read(most + 1)
    except OSError as error:
        raise NotReadable(f"'{path[:100]}' cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise NotReadable(f"'{path[:100]}' is not a path") from error
    if len(content) > most:
        raise TooLarge(f"'{path}' has more than {most // 1024 // 1024} MiB")
    return content


def temporary_folder() -> str:
    """Returns the system's folder for temporary files. `TMPDIR` is not asked: a model could set it in its command."""
    if sys.platform == "darwin":
        return os.confstr(_DARWIN_USER_TEMP_DIR) or "/tmp"  # noqa: S108  # only read, and never through a link
    return "/tmp"  # noqa: S108  # only read, and never through a link


def _open_inside(path: str, target: str, folders: "Sequence[str]") -> int:
    """Opens `target`, which has no links any more; one that appears meanwhile is an OSError."""
    for folder in folders:
        root = os.path.realpath(folder)
        names = os.path.relpath(target, root).split(os.sep)
        if names[0] in (os.pardir, os.curdir):
            continue
        at = os.open(root, _FOLDER_FLAGS)
        try:
            for name in names[:-1]:
                below = os.open(name, _FOLDER_FLAGS, dir_fd=at)
                os.close(at)
                at = below
            return os.open(names[-1], _FILE_FLAGS, dir_fd=at)
        finally:
            os.close(at)
    raise NotReadable(f"'{path}' is not a file inside {' or '.join(folders)}")
