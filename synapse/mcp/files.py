"""Makes parts of a message of the files that a model attaches."""

import os

from synapse.client.files import NotReadable, TooLarge, read_inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_BYTES = 2 * 1024 * 1024
"""Of all files of a message together. Base64 makes them a third larger, and a host accepts 4 MiB by default."""


def file_parts(paths: "list[str]", folder: str) -> "list[dict[str, Any]]":
    """Returns the files as parts of a message. Relative paths start at `folder`, outside of which nothing is read.

    Raises:
        NotReadable: a path leads outside, is no regular file, cannot be read, or the files are too large together.
    """
    left = MOST_BYTES
    parts: list[dict[str, Any]] = []
    for path in paths:
        try:
            content = read_inside(path, folder, (folder,), left)
        except TooLarge as error:
            most = MOST_BYTES // 1024 // 1024
            raise NotReadable(f"the files have more than {most} MiB together; name the paths instead") from error
        left -= len(content)
        parts.append({"type": "file", "file": {"name": os.path.basename(path), "bytes": _base64(content)}})
    return parts


def _base64(content: bytes) -> str:
    from binascii import b2a_base64

    return b2a_base64(content, newline=False).decode("ascii")
