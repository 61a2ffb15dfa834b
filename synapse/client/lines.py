"""Puts texts of others on one line for people, and shortens paths. Light: `synapse list` imports it."""

import os
from unicodedata import category

_CONTROL_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def plain(text: str) -> str:
    """Returns `text` on one line without control characters: it may come from another agent."""
    return "".join(
        " " if char in "\t\n\r" else char
        for char in text
        if char in "\t\n\r" or category(char) not in _CONTROL_CATEGORIES
    )


def first_line(text: str) -> str:
    """Returns the first line of `text` that is not blank, without spaces around it; keeps its characters."""
    return text.strip().partition("\n")[0].rstrip()


def short_path(path: str) -> str:
    """Returns a path with `~` for the home folder."""
    home = os.path.expanduser("~").rstrip(os.sep)
    is_inside = home and (path == home or path.startswith(home + os.sep))
    return f"~{path[len(home) :]}" if is_inside else path
