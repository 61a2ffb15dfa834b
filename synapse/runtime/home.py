"""Where settings and profiles are looked for.

`synapse send` imports this file, so it imports nothing that a bare interpreter has not loaded already.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

PROJECT_FILE = ".synapse/config.toml"
USER_FILE = "config.toml"


def find_above(folder: str, name: str) -> str:
    """The path of `name` in `folder`, or in the nearest folder above that has it; an empty string when none has.

    What belongs to another user is passed over: anybody may write into the temporary folder, above our work.
    """
    while True:
        path = os.path.join(folder, name)
        try:
            if os.stat(path).st_uid in (os.getuid(), 0):
                return path
        except OSError:
            pass  # there is none here, or it is not for us to see
        above = os.path.dirname(folder)
        if above == folder:
            return ""
        folder = above


def user_folder(environ: "Mapping[str, str]") -> str:
    """The folder of the user's own settings and profiles; it may not exist."""
    return os.path.join(environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "synapse")
