"""Puts texts of others on one line for people, and shortens texts and paths. Light: `synapse list` imports it."""

import os
from unicodedata import category, east_asian_width

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


def cut(text: str, columns: int, ellipsis: str = "…") -> str:
    """Shortens `text` to so many columns; `ellipsis` stands for the rest."""
    if width(text) <= columns:
        return text
    kept, room = 0, columns - width(ellipsis)
    for char in text:
        room -= width(char)
        if room < 0:
            break
        kept += 1
    return text[:kept] + ellipsis


def cut_path(path: str, columns: int) -> str:
    """Shortens a path to so many columns: its end says more than its beginning."""
    return path if width(path) <= columns else cut(path[::-1], columns)[::-1]


def short_number(number: int) -> str:
    """Returns a count in at most six characters: `950`, `12.3k`, `4.5M`."""
    if number < 1000:
        return str(number)
    size, power = float(number), 0
    while size >= 999.95 and power < 4:
        size, power = size / 1000, power + 1
    return f"{size:.1f}{' kMGT'[power]}"


def width(text: str) -> int:
    """Returns how many columns `text` takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if category(char) in ("Mn", "Me") else 2 if east_asian_width(char) in "WF" else 1 for char in text)
